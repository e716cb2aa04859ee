mod import;

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
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the default configuration, with a comment on every key
    Default,
    /// Check a file and its drop-ins, and report each error with its line
    Check {
        /// Configuration file [default: /etc/pinion/config.toml]
        file: Option<PathBuf>,
        /// Used by a running daemon before an upgrade: check that this program reads these versions of formats
        #[arg(long, hide = true, value_name = "NAME=VERSION", value_parser = format)]
        understands: Vec<(String, u64)>,
        /// Used by daemons of versions that did not have `--understands`
        #[arg(long, hide = true, value_name = "MAJOR")]
        contract: Option<u32>,
    },
    /// Print the active configuration: of the running daemon, or of the files if none is running
    Show {
        /// Print this file and its drop-ins instead, merged with the defaults
        file: Option<PathBuf>,
        /// Show the file that each value is from
        #[arg(long)]
        origin: bool,
        /// Print the values of the running daemon; fail if none is running
        #[arg(long, conflicts_with = "file")]
        running: bool,
        /// Print the values of /etc/pinion/config.toml and its drop-ins, not those of a running daemon
        #[arg(long, conflicts_with_all = ["file", "running"])]
        files: bool,
    },
    /// Translate a configuration of containerd or CRI-O, and report each key that is not served
    Import(import::Args),
    /// Reload the configuration files of the running daemon; if one is invalid, nothing changes
    Reload,
}

/// A request that needs a running daemon.
pub(crate) enum DaemonRequest {
    /// `or_files`: show the values of the files if no daemon is listening.
    Show {
        origin: bool,
        or_files: bool,
    },
    Reload,
}

/// Runs the actions that need only the local files. Returns the request for the daemon, if the action needs one.
pub(crate) fn run(args: Args, json: bool) -> Result<Option<DaemonRequest>, Failure> {
    match args.action {
        Action::Default if json => output::json(&loaded(Layers::of_text("", ""))?.0)?,
        Action::Default => output::line(DEFAULT.trim_end())?,
        Action::Check { file, mut understands, contract } => {
            understands.extend(contract.map(|major| ("monitor-contract".to_owned(), major.into())));
            for (name, version) in &understands {
                let hint = "run a daemon of the version that wrote it until its containers are removed";
                pod::check_format(name, *version).map_err(|cause| Failure::new(format!("{cause}; {hint}")))?;
            }
            check(file.as_deref(), json)?;
        }
        Action::Show { file: None, files: false, origin, running } => {
            return Ok(Some(DaemonRequest::Show { origin, or_files: !running }));
        }
        Action::Show { file, origin, .. } => show(file.as_deref(), origin, json)?,
        Action::Import(args) => import::run(&args, json)?,
        Action::Reload => return Ok(Some(DaemonRequest::Reload)),
    }
    Ok(None)
}

/// Checks a file and its drop-ins. A running daemon that is about to be replaced reads the line on standard output.
fn check(file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let checked = loaded(Layers::load(file));
    let files = checked.as_ref().map(|(_, layers)| layers.files.clone()).unwrap_or_default();
    if json {
        let message = checked.err().map(|failure| failure.to_string());
        let errors: Vec<&str> = message.iter().flat_map(|text| text.lines()).collect();
        output::json(&serde_json::json!({"valid": errors.is_empty(), "wrong": errors, "files": files}))?;
        return if errors.is_empty() { Ok(()) } else { Err(Failure::quiet(1)) };
    }
    checked?;
    if files.is_empty() {
        eprintln!("pinion: neither {DEFAULT_FILE} nor a drop-in exists: nothing was checked, the defaults are used");
    }
    output::line(VALID)
}

/// Prints the configuration of the files.
fn show(file: Option<&Path>, origin: bool, json: bool) -> Result<(), Failure> {
    let (config, layers) = loaded(Layers::load(file))?;
    if json {
        return output::json(&config);
    }
    let text = config.to_toml(origin.then_some(&layers)).map_err(|error| Failure::new(error.to_string()))?;
    output::line(text.trim_end())
}

/// Parses the name and version of a format, such as `records=1`.
fn format(text: &str) -> Result<(String, u64), String> {
    let (name, version) = text.split_once('=').ok_or("not NAME=VERSION")?;
    Ok((name.to_owned(), version.parse().map_err(|_| format!("{version:?} is not a version"))?))
}

/// Sends the request to the daemon and prints the response.
pub(crate) async fn send(client: Result<Client, Failure>, request: DaemonRequest, json: bool) -> Result<u8, Failure> {
    let mut client = match (client, &request) {
        (Err(failure), DaemonRequest::Show { origin, or_files: true }) => {
            eprintln!("pinion: {failure}; showing the configuration of the files");
            show(None, *origin, json)?;
            return Ok(0);
        }
        (client, _) => client?,
    };
    match request {
        DaemonRequest::Show { origin, .. } => {
            let text = client.native.config(ConfigRequest { origin }).await?.into_inner().toml;
            if client.json {
                let table: toml::Table = toml::from_str(&text)
                    .map_err(|error| Failure::new(format!("parse the response of the daemon: {error}")))?;
                output::json(&table)?;
            } else {
                output::line(text.trim_end())?;
            }
        }
        DaemonRequest::Reload => {
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
    let check = |layers: Layers| Config::of(layers.clone()).map(|config| (config, layers));
    layers.and_then(check).map_err(|error| Failure::new(error.to_string()))
}
