use std::path::PathBuf;

use crate::{
    Failure,
    daemon::config::{Config, DEFAULT},
    output,
};

/// Arguments of `pinion config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print the defaults with a comment on every key: a file to start from
    Default,
    /// Check a file; say what is wrong in which line
    Check {
        /// The file [default: /etc/pinion/config.toml]
        file: Option<PathBuf>,
    },
    /// Print what holds: a file's values on top of the defaults
    Show {
        /// The file [default: /etc/pinion/config.toml]
        file: Option<PathBuf>,
    },
}

pub(crate) fn run(args: Args, json: bool) -> Result<u8, Failure> {
    let load = |file: Option<PathBuf>| Config::load(file.as_deref()).map_err(|error| Failure::new(error.to_string()));
    match args.what {
        What::Default if json => output::json(&load_defaults()?)?,
        What::Default => output::line(DEFAULT.trim_end())?,
        What::Check { file } => {
            load(file)?;
            output::line(if json { "{\"valid\": true}" } else { "valid" })?;
        }
        What::Show { file } if json => output::json(&load(file)?)?,
        What::Show { file } => {
            let text =
                toml::to_string_pretty(&load(file)?).map_err(|error| Failure::new(format!("write TOML: {error}")))?;
            output::line(text.trim_end())?;
        }
    }
    Ok(0)
}

fn load_defaults() -> Result<Config, Failure> {
    Config::parse("", "").map_err(|error| Failure::new(error.to_string()))
}
