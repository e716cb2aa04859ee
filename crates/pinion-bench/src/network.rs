//! `pinion-bench network`: throughput and latency between two containers, for the network drivers of container engines.
//!
//! ```text
//! for each pair of drivers
//!   pinion ─ node(s) ─ daemon(s) ─ two containers ─┐
//!   docker ─ node(s) ─ daemon(s) ─ two containers ─┴─▶ turns: iperf3, sockperf over TCP, sockperf over UDP; idle and under load
//! ```
//! A node has a mount, a network and a PID namespace, and everything that a daemon writes is on a tmpfs there. It ends with this
//! process, and another one removes its cgroups then. So nothing is left, even if this process is killed. The meters are the same for
//! all engines: an engine returns two places, each a network namespace and a cgroup, or a guest, and the server's address.

mod bed;
mod docker;
mod driver;
mod groups;
mod guest;
mod image;
mod meters;
mod namespace;
mod node;
mod pinion;
mod place;
mod running;
mod tap;
mod turns;

use std::{path::PathBuf, time::Duration};

use crate::{block_on, engine::Failure, report, run};
pub(crate) use groups::{SweeperArguments, sweep};
pub(crate) use tap::relay;
use turns::Drivers;

/// Arguments of `pinion-bench network`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engines to measure; ratios are those of the first one to each other one.
    #[arg(long, short = 'e', value_delimiter = ',', value_enum, default_values_t = [Engine::Pinion, Engine::Docker])]
    engine: Vec<Engine>,
    /// Drivers of the client and the server.
    #[arg(long, short = 'p', value_delimiter = ',', value_enum, default_values_t = Pair::ALL)]
    pair: Vec<Pair>,
    /// Number of rounds for each pair. The engines take turns in each, and none is always the first.
    #[arg(long, alias = "runs", default_value_t = 15)]
    rounds: usize,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Measure only with idle processors, without stress-ng.
    #[arg(long)]
    only_idle: bool,
    /// Pinion's program.
    #[arg(long, default_value = "pinion")]
    pinion: PathBuf,
    /// Docker's daemon.
    #[arg(long, default_value = "dockerd")]
    dockerd: PathBuf,
    /// Docker's command line.
    #[arg(long, default_value = "docker")]
    docker: PathBuf,
    /// Directory with the image of the guests (`pinion vm image`).
    #[arg(long, default_value = "/var/lib/pinion/vm")]
    guest_image: PathBuf,
    /// A static busybox, the only file of the containers' image.
    #[arg(long, default_value = "/bin/busybox")]
    busybox: PathBuf,
    #[command(flatten)]
    options: run::Options,
}

/// A container engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// Pinion.
    Pinion,
    /// Docker.
    Docker,
    /// Pinion, with each container in a virtual machine. Meters are executed in the guests, whose programs are those of the node.
    Vm,
    /// Pinion, with taps coupled with the containers' links as for virtual machines, but no guests: this program moves the frames
    /// between each tap and one in another namespace. What a guest costs beyond that is its own, or that of its emulation.
    Tap,
}

/// The networks of the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pair {
    /// Two containers of the engine's default network.
    Bridge,
    /// A client of the node itself, and a container of the default network, by its own address.
    Host,
    /// Two containers with macvlan links on one link of the node.
    Macvlan,
    /// Containers of two nodes.
    Overlay,
}

/// What else runs during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Nothing.
    Idle,
    /// `stress-ng` in the server's container, with a worker for each processor.
    Stressed,
}

/// Runs all measurements and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.rounds == 0 {
        return Err(Failure("--rounds must be at least 1".to_owned()));
    }
    if arguments.pair.iter().enumerate().any(|(number, pair)| arguments.pair[..number].contains(pair)) {
        return Err(Failure("--pair names a pair twice".to_owned()));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure(
            "create the namespaces of a node: not permitted; run pinion-bench network as root".to_owned(),
        ));
    }
    let mut drivers = Drivers::new(arguments)?;
    block_on(async {
        let results = run::drive(&mut drivers, &arguments.options).await;
        report::finish(results?, &arguments.options)
    })
}

/// Repeats an operation until it succeeds; returns its last error if it does not in time.
fn retry<T>(limit: Duration, mut operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let end = std::time::Instant::now() + limit;
    loop {
        match operation() {
            Err(_) if std::time::Instant::now() < end => std::thread::sleep(Duration::from_millis(100)),
            result => return result,
        }
    }
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Pinion => "pinion",
            Self::Docker => "docker",
            Self::Vm => "vm",
            Self::Tap => "tap",
        }
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Pair {
    const ALL: [Self; 4] = [Self::Bridge, Self::Host, Self::Macvlan, Self::Overlay];

    /// Returns the value of `--pair`.
    fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Host => "host",
            Self::Macvlan => "macvlan",
            Self::Overlay => "overlay",
        }
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Stressed => "under load",
        }
    }
}
