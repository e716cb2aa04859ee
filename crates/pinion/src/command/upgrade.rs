use std::path::PathBuf;

use cri_proto::pinion::{UpgradeDaemonRequest, UpgradeMonitorRequest};
use serde_json::json;

use crate::{Client, Failure, output};

/// Arguments of `pinion upgrade`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which program
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// The monitor program to take in place of the installed one
    #[arg(long, value_name = "PROGRAM")]
    monitor: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// The monitor, then the daemon
    All,
    /// The process that holds the containers: another program in its place
    Monitor,
    /// The process that answers: the installed program in its place, with the same socket
    Daemon,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut done = serde_json::Map::new();
    if args.what != What::Daemon {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        let program = args.monitor.map(absolute).transpose()?.unwrap_or_default().display().to_string();
        let now = client.native.upgrade_monitor(UpgradeMonitorRequest { program }).await?.into_inner();
        done.insert("monitor".into(), json!({"upgraded": now.upgraded, "version": now.version, "pid": now.pid}));
        if !client.json {
            let became = if now.upgraded { "became" } else { "is already" };
            output::line(&format!("monitor: process {} {became} the installed pinmon {}", now.pid, now.version))?;
        }
    }
    if args.what != What::Monitor {
        client.native.upgrade_daemon(UpgradeDaemonRequest {}).await?;
        done.insert("daemon".into(), json!({"givesWay": true}));
        if !client.json {
            output::line("daemon: gives way to the installed pinion as soon as running requests are answered")?;
        }
    }
    if client.json {
        output::json(&done)?;
    }
    Ok(0)
}
