use std::path::PathBuf;

use cri_proto::pinion::{ConfigRequest, ReloadRequest};

use crate::{
    Client, Failure,
    daemon::{
        config::{Config, ConfigError, DEFAULT, Layers},
        reexec::VALID,
    },
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
    /// Check a file and its drop-ins; say what is wrong in which line
    Check {
        /// The file [default: /etc/pinion/config.toml]
        file: Option<PathBuf>,
        /// What a daemon that is to give way asks of its successor: to read these versions of formats
        #[arg(long, hide = true, value_name = "NAME=VERSION", value_parser = format)]
        understands: Vec<(String, u64)>,
        /// As a daemon asked before there was `--understands`
        #[arg(long, hide = true, value_name = "MAJOR")]
        contract: Option<u32>,
    },
    /// Print what holds: the defaults, a file's values and its drop-ins'
    Show {
        /// The file [default: /etc/pinion/config.toml]
        file: Option<PathBuf>,
        /// Tell of each value which file says it
        #[arg(long)]
        origin: bool,
        /// What the running daemon works with
        #[arg(long, conflicts_with = "file")]
        running: bool,
    },
    /// Have the running daemon take up its files as they are now: wholly or not at all
    Reload,
}

/// What only the daemon can answer.
pub(crate) enum Asked {
    Show { origin: bool },
    Reload,
}

/// Answers from the machine's files; `Some`: the daemon is to be asked.
pub(crate) fn run(args: Args, json: bool) -> Result<Option<Asked>, Failure> {
    match args.what {
        What::Default if json => output::json(&loaded(Layers::of_text("", ""))?.0)?,
        What::Default => output::line(DEFAULT.trim_end())?,
        What::Check { file, mut understands, contract } => {
            understands.extend(contract.map(|major| ("monitor-contract".to_owned(), major.into())));
            for (name, version) in &understands {
                let hint = "run a daemon of the version that wrote it until its containers are gone";
                pod::understands(name, *version).map_err(|why| Failure::new(format!("{why}; {hint}")))?;
            }
            let checked = loaded(Layers::load(file.as_deref()));
            if !json {
                checked?;
                output::line(VALID)?;
                return Ok(None);
            }
            let wrong = checked.err().map(|failure| failure.to_string());
            let wrong: Vec<&str> = wrong.iter().flat_map(|text| text.lines()).collect();
            output::json(&serde_json::json!({"valid": wrong.is_empty(), "wrong": wrong}))?;
            if !wrong.is_empty() {
                return Err(Failure::quiet(1));
            }
        }
        What::Show { origin, running: true, .. } => return Ok(Some(Asked::Show { origin })),
        What::Show { file, .. } if json => output::json(&loaded(Layers::load(file.as_deref()))?.0)?,
        What::Show { file, origin, .. } => {
            let (config, layers) = loaded(Layers::load(file.as_deref()))?;
            let text = config.shown(origin.then_some(&layers)).map_err(|error| Failure::new(error.to_string()))?;
            output::line(text.trim_end())?;
        }
        What::Reload => return Ok(Some(Asked::Reload)),
    }
    Ok(None)
}

/// `records=1`
fn format(text: &str) -> Result<(String, u64), String> {
    let (name, version) = text.split_once('=').ok_or("it is not NAME=VERSION")?;
    Ok((name.to_owned(), version.parse().map_err(|_| format!("{version:?} is no version"))?))
}

/// Has the daemon answer.
pub(crate) async fn ask(mut client: Client, asked: Asked) -> Result<u8, Failure> {
    match asked {
        Asked::Show { origin } => {
            let text = client.native.config(ConfigRequest { origin }).await?.into_inner().toml;
            if client.json {
                let table: toml::Table =
                    toml::from_str(&text).map_err(|error| Failure::new(format!("the daemon's answer: {error}")))?;
                output::json(&table)?;
            } else {
                output::line(text.trim_end())?;
            }
        }
        Asked::Reload => {
            let changed = client.native.reload(ReloadRequest {}).await?.into_inner().changed;
            match (client.json, changed.is_empty()) {
                (true, _) => output::json(&serde_json::json!({"changed": changed}))?,
                (false, true) => output::line("nothing changed")?,
                (false, false) => output::line(&format!("changed: {}", changed.join(", ")))?,
            }
        }
    }
    Ok(0)
}

fn loaded(layers: Result<Layers, ConfigError>) -> Result<(Config, Layers), Failure> {
    let of = |layers: Layers| Config::of(layers.clone()).map(|config| (config, layers));
    layers.and_then(of).map_err(|error| Failure::new(error.to_string()))
}
