//! What both programs of campaigns share: signals and exit codes.

use std::{future::Future, process::ExitCode};

use tokio::signal::unix::{SignalKind, signal};

/// Runs a campaign as a program: 0 without faults, 1 with faults, 2 where it could not run. SIGINT and SIGTERM end it
/// and its node, whose attackers nothing else would end.
///
/// # Panics
/// If signal handlers cannot be installed.
pub async fn run(name: &str, campaign: impl Future<Output = Result<Vec<String>, String>>) -> ExitCode {
    let mut interrupt = signal(SignalKind::interrupt()).expect("a handler of SIGINT");
    let mut terminate = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
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
