use std::path::PathBuf;

use crate::{
    Failure,
    daemon::{self, Source},
};

/// Arguments of `pinion serve`. They take precedence over the configuration files.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Configuration file [default: /etc/pinion/config.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory for state that is discarded at boot
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
    /// Directory for images and writable layers
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub(crate) fn run(args: Args, socket: Option<PathBuf>) -> Result<u8, Failure> {
    daemon::serve(args.source(socket)?)?;
    Ok(0)
}

impl Args {
    /// Returns the sources of the configuration.
    pub(crate) fn source(self, socket: Option<PathBuf>) -> Result<Source, Failure> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Failure::usage(format!("resolve path {}: {error}", path.display())))
        };
        Ok(Source {
            // The working directory may be another one at a reload.
            file: self.config.map(absolute).transpose()?,
            socket: socket.map(absolute).transpose()?,
            state_dir: self.state_dir.map(absolute).transpose()?,
            data_dir: self.data_dir.map(absolute).transpose()?,
            log_level: self.log_level,
        })
    }
}
