use std::path::PathBuf;

use crate::{
    Failure,
    daemon::{self, config::Config},
};

/// Arguments of `pinion serve`. What is said here goes before the file.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Configuration [default: /etc/pinion/config.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of what lives until the next boot
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// Folder of images and writable layers
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub(crate) fn run(args: Args, socket: Option<PathBuf>) -> Result<u8, Failure> {
    daemon::serve(args.config(socket)?)?;
    Ok(0)
}

impl Args {
    /// The configuration that holds.
    pub(crate) fn config(self, socket: Option<PathBuf>) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref()).map_err(|error| Failure::daemon(error.to_string()))?;
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        if let Some(path) = socket {
            config.socket = absolute(path)?;
        }
        if let Some(path) = self.state_dir {
            config.state_dir = absolute(path)?;
        }
        if let Some(path) = self.data_dir {
            config.data_dir = absolute(path)?;
        }
        if let Some(level) = self.log_level {
            config.log.level = level;
        }
        Ok(config)
    }
}
