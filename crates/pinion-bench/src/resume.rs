//! `pinion-bench resume`: continues an interrupted run with the command line that is recorded in its results.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{engine::Failure, machine::Machine, results};

/// Arguments of `pinion-bench resume`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Results of the run, written with --results.
    file: PathBuf,
}

/// Replaces this process by the run; returns only if that fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let results = results::read(&arguments.file)?;
    let file = arguments.file.display();
    if results.is_complete() {
        return Err(Failure(format!("resume {file}: it is complete; report on it with `pinion-bench report {file}`")));
    }
    if results.head.machine != Machine::here() {
        return Err(Failure(format!("resume {file}: it was measured on another machine; start a new run")));
    }
    let path = std::path::absolute(&arguments.file).map_err(|error| Failure(format!("resume {file}: {error}")))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(results.head.command.iter().skip(1)).current_dir(Path::new(&results.head.directory));
    // The file may have been moved since.
    command.arg("--resume").arg("--results").arg(path);
    Err(Failure(format!("resume {file}: {}", command.exec())))
}
