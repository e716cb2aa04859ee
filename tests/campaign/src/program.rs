//! Signal handling and exit codes of the campaign programs.

use std::{future::Future, process::ExitCode};

use tokio::signal::unix::{SignalKind, signal};

/// Runs a campaign as a program. The exit code is 0 without faults, 1 with faults, and 2 if the campaign could not run.
/// SIGINT and SIGTERM stop it and its node, because otherwise attackers would keep running.
///
/// # Panics
/// If signal handlers cannot be installed.
pub async fn run(name: &str, campaign: impl Future<Output = Result<Vec<String>, String>>) -> ExitCode {
    let mut interrupt = signal(SignalKind::interrupt()).expect("install a handler for SIGINT");
    let mut terminate = signal(SignalKind::terminate()).expect("install a handler for SIGTERM");
    let result = tokio::select! {
        result = campaign => result,
        _ = interrupt.recv() => Err("interrupted".to_owned()),
        _ = terminate.recv() => Err("terminated".to_owned()),
    };
    match result {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}
