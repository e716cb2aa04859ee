//! The processes of an engine: killing them, and starting its daemon again.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use syscall::process_stat::ProcessStat;

use crate::program;

/// How long the end of a process is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// Kills a process with SIGKILL.
pub(super) fn kill(pid: i32) -> Result<(), String> {
    if pid <= 1 {
        return Err(format!("process {pid} listens, which starts the daemon on demand; it is not killed"));
    }
    let process = Pid::from_raw(pid).ok_or_else(|| format!("{pid} is not a process id"))?;
    kill_process(process, Signal::KILL).map_err(|errno| format!("kill process {pid}: {errno}"))
}

/// Returns the pids of a program that are ancestors of processes with this command line. Those of other engines are not.
pub(super) fn parents(program: &str, words: &[String]) -> BTreeSet<i32> {
    let mut parents = BTreeSet::new();
    for pid in with_command(words) {
        let mut ancestor = pid;
        while ancestor > 1 {
            let stat = Pid::from_raw(ancestor).and_then(|pid| ProcessStat::read(pid).ok());
            let Some(stat) = stat else { break };
            ancestor = stat.parent;
            if ancestor > 1 && name(ancestor).is_some_and(|name| name == program) {
                parents.insert(ancestor);
            }
        }
    }
    parents
}

/// Returns the pids of processes with this command line.
pub(super) fn with_command(words: &[String]) -> Vec<i32> {
    let mut line = words.join("\0");
    line.push('\0');
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text == line.as_bytes())).collect()
}

/// Returns the last component of the first word of a process's command line.
fn name(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
    Some(Path::new(&first).file_name()?.to_string_lossy().into_owned())
}

/// Waits for the end of a process for a limited time. Returns whether it ended.
pub(super) fn wait(child: &mut Child) -> bool {
    // A failure means that it cannot be waited for.
    !matches!(program::wait(child, WAIT), Ok(None))
}

/// Starts a daemon by a command for the shell, in a session of its own: an interrupt from the terminal must not stop it.
pub(super) fn start(command: &str) -> Result<Child, String> {
    let mut shell = Command::new("setsid");
    shell.args(["sh", "-c", &format!("exec {command}")]);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map_err(|error| format!("start the daemon by {command:?}: {error}"))
}
