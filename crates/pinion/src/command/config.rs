use std::path::{Path, PathBuf};

use cri_proto::pinion::{ConfigRequest, ReloadRequest};

use crate::{
    Client, Failure,
    daemon::{
        config::{Config, ConfigError, DEFAULT, DEFAULT_FILE, Layers},
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
    /// Print what holds: the running daemon's values, or the files' where no daemon runs
    Show {
        /// A file and its drop-ins instead, on top of the defaults
        file: Option<PathBuf>,
        /// Add to each value which file has it
        #[arg(long)]
        origin: bool,
        /// The running daemon's values, or a failure where none runs
        #[arg(long, conflicts_with = "file")]
        running: bool,
        /// The values of /etc/pinion/config.toml and its drop-ins, whatever a running daemon has
        #[arg(long, conflicts_with_all = ["file", "running"])]
        files: bool,
    },
    /// Have the running daemon take up its files as they are now: wholly or not at all
    Reload,
}

/// What only the daemon can answer.
pub(crate) enum Asked {
    /// `or_files`: the files' values where no daemon answers.
    Show {
        origin: bool,
        or_files: bool,
    },
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
            check(file.as_deref(), json)?;
        }
        What::Show { file: None, files: false, origin, running } => {
            return Ok(Some(Asked::Show { origin, or_files: !running }));
        }
        What::Show { file, origin, .. } => show(file.as_deref(), origin, json)?,
        What::Reload => return Ok(Some(Asked::Reload)),
    }
    Ok(None)
}

/// Checks a file and its drop-ins. The one line of standard output is for a daemon that asks its successor.
fn check(file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let checked = loaded(Layers::load(file));
    let read = checked.as_ref().map(|(_, layers)| layers.files.clone()).unwrap_or_default();
    if json {
        let wrong = checked.err().map(|failure| failure.to_string());
        let wrong: Vec<&str> = wrong.iter().flat_map(|text| text.lines()).collect();
        output::json(&serde_json::json!({"valid": wrong.is_empty(), "wrong": wrong, "files": read}))?;
        return if wrong.is_empty() { Ok(()) } else { Err(Failure::quiet(1)) };
    }
    checked?;
    if read.is_empty() {
        eprintln!("pinion: neither {DEFAULT_FILE} nor a drop-in is there: nothing was checked, the defaults hold");
    }
    output::line(VALID)
}

/// Prints what the files say.
fn show(file: Option<&Path>, origin: bool, json: bool) -> Result<(), Failure> {
    let (config, layers) = loaded(Layers::load(file))?;
    if json {
        return output::json(&config);
    }
    let text = config.shown(origin.then_some(&layers)).map_err(|error| Failure::new(error.to_string()))?;
    output::line(text.trim_end())
}

/// `records=1`
fn format(text: &str) -> Result<(String, u64), String> {
    let (name, version) = text.split_once('=').ok_or("it is not NAME=VERSION")?;
    Ok((name.to_owned(), version.parse().map_err(|_| format!("{version:?} is no version"))?))
}

/// Has the daemon answer.
pub(crate) async fn ask(client: Result<Client, Failure>, asked: Asked, json: bool) -> Result<u8, Failure> {
    let mut client = match (client, &asked) {
        (Err(failure), Asked::Show { origin, or_files: true }) => {
            eprintln!("pinion: {failure}; what follows is what the files say");
            show(None, *origin, json)?;
            return Ok(0);
        }
        (client, _) => client?,
    };
    match asked {
        Asked::Show { origin, .. } => {
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
