//! `pinion-bench netns`: what it costs a server to be in many network namespaces at the same time, in each of the ways to
//! build such a server.
//!
//! ```text
//! pinion-bench netns ─ creates and pins namespaces ─┬─▶ server (netns-server), on its processors
//!                                                   └─▶ client (netns-client), on the others: requests of 64 bytes, echoed
//! ```
//! Everything happens in a mount namespace of this process with an empty `/run`, so nothing is left, even if it is killed.

mod burst;
mod client;
mod plan;
mod report;
mod server;
mod server_process;
mod turns;
mod vrf;

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use syscall::mount_namespace::unshare_mounts;

use crate::{block_on, engine::Failure, machine::Machine, output, report as reports, run};
pub(crate) use client::{ClientArguments, run as run_client};
use plan::Strategy;
pub(crate) use server::{ServerArguments, run as run_server};
use server_process::Kind;
use turns::Servers;

/// Arguments of `pinion-bench netns`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Numbers of namespaces to measure.
    #[arg(long, short = 'n', value_delimiter = ',', default_values_t = [1, 16, 64, 512])]
    namespaces: Vec<usize>,
    /// Numbers of connections in each namespace.
    #[arg(long, short = 'c', value_delimiter = ',', default_values_t = [1, 8])]
    connections: Vec<usize>,
    /// Ways to serve them. `one` is one namespace with as many connections as all the others, which the ratios refer to.
    #[arg(long, short = 's', value_delimiter = ',', value_enum, default_values_t = Strategy::ALL)]
    strategies: Vec<Strategy>,
    /// Another server to measure: a program that is started with the arguments `--pins DIRECTORY`, prints a line that begins
    /// with `listening`, answers on 127.0.0.1:7 in each namespace that is pinned there, and is ended by SIGTERM.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Duration of each measurement in seconds, after a warm-up of a quarter of it.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of rounds for each number of namespaces and connections. The servers take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Only measure creation, deletion and memory.
    #[arg(long)]
    only_bursts: bool,
    /// Do not measure creation, deletion and memory.
    #[arg(long, conflicts_with = "only_bursts")]
    no_bursts: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all measurements and prints the tables. Must be called before this process has a second thread.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let numbers = arguments.namespaces.iter().chain(&arguments.connections);
    if numbers.clone().any(|number| *number == 0) || arguments.rounds == 0 || arguments.seconds.is_nan() {
        return Err(Failure("--namespaces, --connections and --rounds must be at least 1".to_owned()));
    }
    if !(0.1..=3600.0).contains(&arguments.seconds) {
        return Err(Failure("--seconds must be between 0.1 and 3600".to_owned()));
    }
    if let Some(path) = arguments.options.files().find(|path| is_in_run(path)) {
        let path = path.display();
        return Err(Failure(format!(
            "{path}: this command has a /run of its own, which is gone at its end; name another directory"
        )));
    }
    private_run().map_err(|e| Failure(format!("create a mount namespace: {e}; run pinion-bench netns as root")))?;
    if !arguments.no_bursts {
        let bursts = arguments.namespaces.iter().map(|count| burst::measure(*count)).collect::<Result<Vec<_>, _>>()?;
        let title = "Creation and deletion of namespaces, ms for all";
        output::print(&format!("{title}; {}\n\n{}\n", Machine::here().line(), report::table(&bursts)))?;
    }
    if arguments.only_bursts {
        return Ok(());
    }
    let mut kinds: Vec<Kind> = arguments.strategies.into_iter().map(Kind::Strategy).collect();
    kinds.extend(arguments.server.map(Kind::Program));
    let mut servers = Servers {
        kinds,
        namespaces: arguments.namespaces,
        connections: arguments.connections,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        current: None,
    };
    block_on(async {
        let results = run::drive(&mut servers, &arguments.options).await;
        reports::finish(results?, &arguments.options)
    })
}

/// Returns whether a file is in `/run`, which is also `/var/run`.
fn is_in_run(path: &Path) -> bool {
    std::path::absolute(path).is_ok_and(|path| path.starts_with("/run") || path.starts_with("/var/run"))
}

/// Gives this process a mount namespace with an empty `/run`.
fn private_run() -> std::io::Result<()> {
    unshare_mounts()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None)?)
}

impl From<netns::Error> for Failure {
    fn from(error: netns::Error) -> Self {
        Self(error.to_string())
    }
}
