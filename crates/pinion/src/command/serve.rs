use std::path::PathBuf;

use crate::{
    Failure,
    daemon::{self, Source},
};

/// Arguments of `pinion serve`. What is said here goes before the file.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Configuration [default: /etc/pinion/config.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of what lives until the next boot
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
    /// Directory of images and writable layers
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub(crate) fn run(args: Args, socket: Option<PathBuf>) -> Result<u8, Failure> {
    daemon::serve(args.source(socket)?)?;
    Ok(0)
}

impl Args {
    /// Where the configuration comes from.
    pub(crate) fn source(self, socket: Option<PathBuf>) -> Result<Source, Failure> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        Ok(Source {
            // A reload may come when the working directory is another.
            file: self.config.map(absolute).transpose()?,
            socket: socket.map(absolute).transpose()?,
            state_dir: self.state_dir.map(absolute).transpose()?,
            data_dir: self.data_dir.map(absolute).transpose()?,
            log_level: self.log_level,
        })
    }
}
