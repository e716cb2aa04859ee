//! Measures container engines on the local machine, two or more in one interleaved run.
//!
//! `pinion-bench pods` drives the life cycle of pods over any CRI socket, `pinion-bench oci` measures OCI runtimes,
//! `pinion-bench netns` ways to serve many network namespaces, `pinion-bench cni` network plugins,
//! `pinion-bench network` network drivers. Engines are measured by the
//! public CRI and `/proc` only, so that none is favoured.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bucket;
mod burst;
mod call;
mod chaos;
mod cni;
mod compare;
mod daemonsets;
mod density;
mod engine;
mod lists;
mod machine;
mod netns;
mod network;
mod note;
mod number;
mod oci;
mod output;
mod plot;
mod pods;
mod preset;
mod probes;
mod process;
mod program;
mod published;
mod pull;
mod report;
mod restart;
mod results;
mod resume;
mod run;
mod runtimes;
mod statistics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures container engines side by side on this machine.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Life cycle of pods: RunPodSandbox, CreateContainer, StartContainer, ExecSync, Stop, Remove.
    Pods(pods::Arguments),
    /// Threads that each run, stop and delete pods, as bucketbench does.
    Bucket(bucket::Arguments),
    /// Many pods that are started and removed one after the other and at once, while the engine is polled as by a kubelet.
    Burst(burst::Arguments),
    /// DaemonSets of a real cluster, created and deleted one after the other and at once.
    Daemonsets(daemonsets::Arguments),
    /// Pods that are started until memory ends: how many there are, and what each takes.
    Density(density::Arguments),
    /// Kills of an engine's parts while pods start: what is lost, what is left, and how long until all is well.
    Chaos(chaos::Arguments),
    /// List and stats requests on a full node.
    Lists(lists::Arguments),
    /// Exec probes: a command that is executed periodically in each of many containers.
    Probes(probes::Arguments),
    /// Pulls of images, until the first output of a container.
    Pull(pull::Arguments),
    /// Time from the start of a daemon until it is ready, on a node full of pods.
    Restart(restart::Arguments),
    /// OCI runtimes with runc's command line: run, exec, create, start, kill, delete.
    Oci(oci::Arguments),
    /// Containers of `true`, each runtime through engines and at the command line.
    Runtimes(runtimes::Arguments),
    /// Servers in many network namespaces, built in each of the possible ways.
    Netns(netns::Arguments),
    /// Attaching pods to networks and detaching them, next to the programs of CNI plugins.
    Cni(cni::Arguments),
    /// Throughput and latency between containers, for the network drivers of Pinion and Docker.
    Network(network::Arguments),
    /// Runs a scenario with the setting of a published comparison.
    Preset(preset::Arguments),
    /// Reports on results that scenarios wrote with --results.
    Report(report::Arguments),
    /// Compares two runs of a scenario.
    Compare(compare::Arguments),
    /// Continues an interrupted run.
    Resume(resume::Arguments),
    /// Removes cgroups when a run ends (used internally by `network`).
    #[command(hide = true)]
    NetworkSweeper(network::SweeperArguments),
    /// Moves frames between two taps (used internally by `network`).
    #[command(hide = true)]
    NetworkRelay,
    /// A node (used internally by `cni`).
    #[command(hide = true)]
    CniWorker(cni::WorkerArguments),
    /// An echo server (used internally by `netns`).
    #[command(hide = true)]
    NetnsServer(netns::ServerArguments),
    /// Its client (used internally by `netns`).
    #[command(hide = true)]
    NetnsClient(netns::ClientArguments),
    /// Starts runtimes on request from standard input (used internally by `oci`).
    #[command(hide = true)]
    OciRunner(oci::RunnerArguments),
}

fn main() -> ExitCode {
    let result = execute(Arguments::parse().scenario);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pinion-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(scenario: Scenario) -> Result<(), engine::Failure> {
    match scenario {
        Scenario::Pods(arguments) => block_on(pods::run(arguments)),
        Scenario::Bucket(arguments) => block_on(bucket::run(arguments)),
        Scenario::Burst(arguments) => block_on(burst::run(arguments)),
        Scenario::Daemonsets(arguments) => block_on(daemonsets::run(arguments)),
        Scenario::Density(arguments) => block_on(density::run(arguments)),
        Scenario::Chaos(arguments) => block_on(chaos::run(arguments)),
        Scenario::Lists(arguments) => block_on(lists::run(arguments)),
        Scenario::Probes(arguments) => block_on(probes::run(arguments)),
        Scenario::Pull(arguments) => block_on(pull::run(arguments)),
        Scenario::Restart(arguments) => block_on(restart::run(arguments)),
        Scenario::Runtimes(arguments) => block_on(runtimes::run(arguments)),
        Scenario::Netns(arguments) => netns::run(arguments),
        Scenario::Cni(arguments) => cni::run(arguments),
        Scenario::Network(arguments) => network::run(&arguments),
        Scenario::NetworkSweeper(arguments) => network::sweep(&arguments),
        Scenario::NetworkRelay => network::relay(),
        Scenario::CniWorker(arguments) => cni::run_worker(&arguments),
        Scenario::NetnsServer(arguments) => netns::run_server(&arguments),
        Scenario::NetnsClient(arguments) => netns::run_client(&arguments),
        Scenario::Oci(arguments) => block_on(oci::run(arguments)),
        Scenario::OciRunner(arguments) => oci::serve(&arguments),
        Scenario::Preset(arguments) => match arguments.command_line()? {
            Some(words) => execute(Arguments::parse_from(words).scenario),
            None => Ok(()),
        },
        Scenario::Report(arguments) => report::run(&arguments),
        Scenario::Compare(arguments) => compare::run(&arguments),
        Scenario::Resume(arguments) => resume::run(&arguments),
    }
}

fn block_on(task: impl Future<Output = Result<(), engine::Failure>>) -> Result<(), engine::Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| engine::Failure(format!("start the async runtime: {error}")))?.block_on(task)
}
