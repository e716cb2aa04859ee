//! A comparison without the engine: while the node is attacked, a shell joins a cgroup with a victim's limits and
//! executes the program that the probes of victims execute.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Record, Stop, groups, latency::Sample};

/// Bound for one process; longer is a fault.
const LONGEST: &str = "20";
/// A process is started this long after the previous one ended.
const PAUSE: Duration = Duration::from_millis(100);
const SCRIPT: &str = r#"program=$1; shift; for file; do echo 0 > "$file"; done; exec "$program" probe alone"#;

/// Starts one process after another until asked to stop. One that does not run is a fault.
pub(super) async fn run_until(stop: Stop, record: Arc<Record>, parent: String, program: PathBuf) {
    let files: Arc<[PathBuf]> = joined_by(groups::paths(&parent)).into();
    let program: Arc<Path> = program.into();
    while !stop.is_set() {
        let (files, program) = (Arc::clone(&files), Arc::clone(&program));
        let at = Instant::now();
        let ran =
            tokio::task::spawn_blocking(move || run(&program, &files)).await.unwrap_or_else(|e| Err(e.to_string()));
        match ran {
            Ok(()) => record.sample(Sample { at, took: at.elapsed() }),
            Err(error) => record.fault(format!("a process in the cgroup {parent}: {error}")),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Files that a process joins these cgroups by. In v1 a single thread moves itself: the kernel stops no fork of the
/// node for it, as it does for `cgroup.procs`. A v2 group next to those of v1 has no controller.
fn joined_by(groups: Vec<PathBuf>) -> Vec<PathBuf> {
    let tasks: Vec<_> = groups.iter().map(|group| group.join("tasks")).filter(|file| file.exists()).collect();
    if tasks.is_empty() { groups.iter().map(|group| group.join("cgroup.procs")).collect() } else { tasks }
}

fn run(program: &Path, files: &[PathBuf]) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", LONGEST, "sh", "-c", SCRIPT, "sh"]).arg(program).args(files).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    match output.stdout == b"alone\n" && output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
