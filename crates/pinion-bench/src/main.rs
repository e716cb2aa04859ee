//! Measures container engines on the local machine, two or more in one interleaved run.
//!
//! `pinion-bench pods` drives the life cycle of pods over any CRI socket, `pinion-bench oci` measures OCI runtimes,
//! `pinion-bench netns` ways to serve many network namespaces, `pinion-bench cni` network plugins,
//! `pinion-bench network` network drivers. Engines are measured by the
//! public CRI and `/proc` only, so that none is favoured.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cni;
mod engine;
mod lists;
mod machine;
mod netns;
mod network;
mod oci;
mod output;
mod plot;
mod pods;
mod probes;
mod process;
mod restart;
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
    /// List and stats requests on a full node.
    Lists(lists::Arguments),
    /// Exec probes: a command that is executed periodically in each of many containers.
    Probes(probes::Arguments),
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
    let result = match Arguments::parse().scenario {
        Scenario::Pods(arguments) => block_on(pods::run(arguments)),
        Scenario::Lists(arguments) => block_on(lists::run(arguments)),
        Scenario::Probes(arguments) => block_on(probes::run(arguments)),
        Scenario::Restart(arguments) => block_on(restart::run(arguments)),
        Scenario::Runtimes(arguments) => block_on(runtimes::run(arguments)),
        Scenario::Netns(arguments) => netns::run(&arguments),
        Scenario::Cni(arguments) => cni::run(&arguments),
        Scenario::Network(arguments) => network::run(&arguments),
        Scenario::NetworkSweeper(arguments) => network::sweep(&arguments),
        Scenario::NetworkRelay => network::relay(),
        Scenario::CniWorker(arguments) => cni::run_worker(&arguments),
        Scenario::NetnsServer(arguments) => netns::run_server(&arguments),
        Scenario::NetnsClient(arguments) => netns::run_client(&arguments),
        Scenario::Oci(arguments) => oci::run(&arguments),
        Scenario::OciRunner(arguments) => oci::serve(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pinion-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(task: impl Future<Output = Result<(), engine::Failure>>) -> Result<(), engine::Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| engine::Failure(format!("start the async runtime: {error}")))?.block_on(task)
}
