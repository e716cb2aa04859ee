use std::path::PathBuf;

use cri_proto::pinion::{UpgradeDaemonRequest, UpgradeMonitorRequest};
use serde_json::json;

use crate::{Client, Failure, output};

/// Arguments of `pinion upgrade`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Program to upgrade
    #[arg(value_enum, default_value = "all")]
    target: Target,
    /// Monitor program to use instead of the installed one
    #[arg(long, value_name = "PROGRAM")]
    monitor: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// The monitor, then the daemon
    All,
    /// The process that is the parent of the containers; it executes the new program
    Monitor,
    /// The process that serves requests; it executes the installed program and keeps its socket
    Daemon,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut results = serde_json::Map::new();
    if args.target != Target::Daemon {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Failure::usage(format!("resolve path {}: {error}", path.display())))
        };
        let program = args.monitor.map(absolute).transpose()?.unwrap_or_default().display().to_string();
        let monitor = client.native.upgrade_monitor(UpgradeMonitorRequest { program }).await?.into_inner();
        results.insert(
            "monitor".into(),
            json!({"upgraded": monitor.upgraded, "version": monitor.version, "pid": monitor.pid}),
        );
        if !client.json {
            let verb = if monitor.upgraded { "now runs" } else { "already runs" };
            output::line(&format!("monitor: process {} {verb} the installed pinmon {}", monitor.pid, monitor.version))?;
        }
    }
    if args.target != Target::Monitor {
        client.native.upgrade_daemon(UpgradeDaemonRequest {}).await?;
        results.insert("daemon".into(), json!({"givesWay": true}));
        if !client.json {
            output::line("daemon: executes the installed pinion when running requests have completed")?;
        }
    }
    if client.json {
        output::json(&results)?;
    }
    Ok(0)
}
