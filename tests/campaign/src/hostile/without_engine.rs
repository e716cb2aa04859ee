//! A comparison without the engine: during the attack, a shell joins a cgroup with the limits of a victim and executes
//! the program of the probes.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Record, Stop, cgroups, latency::Sample};

/// Timeout of a process in seconds; exceeding it is a fault.
const TIMEOUT: &str = "20";
/// Time between the exit of a process and the start of the next one.
const PAUSE: Duration = Duration::from_millis(100);
const SCRIPT: &str = r#"program=$1; shift; for file; do echo 0 > "$file"; done; exec "$program" probe alone"#;

/// Starts one process after another until stopped. A process that fails is a fault.
pub(super) async fn run_until(stop: Stop, record: Arc<Record>, parent: String, program: PathBuf) {
    let files: Arc<[PathBuf]> = join_files(cgroups::paths(&parent)).into();
    let program: Arc<Path> = program.into();
    while !stop.is_set() {
        let (files, program) = (Arc::clone(&files), Arc::clone(&program));
        let sent = Instant::now();
        let result =
            tokio::task::spawn_blocking(move || run(&program, &files)).await.unwrap_or_else(|e| Err(e.to_string()));
        match result {
            Ok(()) => record.sample(Sample { sent, duration: sent.elapsed() }),
            Err(error) => record.fault(format!("a process in the cgroup {parent}: {error}")),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the files with which a process joins these cgroups. In v1 a single thread moves itself with `tasks`: writing
/// to `cgroup.procs` would make the kernel block all forks on the node. A v2 cgroup next to v1 ones has no controllers.
fn join_files(groups: Vec<PathBuf>) -> Vec<PathBuf> {
    let tasks: Vec<_> = groups.iter().map(|group| group.join("tasks")).filter(|file| file.exists()).collect();
    if tasks.is_empty() { groups.iter().map(|group| group.join("cgroup.procs")).collect() } else { tasks }
}

fn run(program: &Path, files: &[PathBuf]) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", TIMEOUT, "sh", "-c", SCRIPT, "sh"]).arg(program).args(files).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    match output.stdout == b"alone\n" && output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
