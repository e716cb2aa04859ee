//! Measures container engines on the reader's own machine, two or more side by side in one interleaved run.
//!
//! `pinion-bench pods` drives any CRI socket through the life of pods. It uses the public CRI and `/proc` only, so that no
//! engine is favoured.

#![forbid(unsafe_code)]

mod engine;
mod machine;
mod pods;
mod process;
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
    /// Whole lives of pods: RunPodSandbox, CreateContainer, StartContainer, ExecSync, Stop, Remove.
    Pods(pods::Arguments),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let result = match Arguments::parse().scenario {
        Scenario::Pods(arguments) => pods::run(arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pinion-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
