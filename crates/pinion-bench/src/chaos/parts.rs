//! The processes of an engine: killing them, and starting its daemon again.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

/// Kills a process with SIGKILL.
pub(super) fn kill(pid: i32) -> Result<(), String> {
    let process = Pid::from_raw(pid).ok_or_else(|| format!("{pid} is not a process id"))?;
    kill_process(process, Signal::KILL).map_err(|errno| format!("kill process {pid}: {errno}"))
}

/// Returns the pids of a program: those that are not in `before`, or all of them if there are no others.
pub(super) fn of_program(program: &str, before: &BTreeSet<i32>) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let all: Vec<i32> = pids.filter(|pid| name(*pid).is_some_and(|name| name == program)).collect();
    let new: Vec<i32> = all.iter().copied().filter(|pid| !before.contains(pid)).collect();
    if new.is_empty() { all } else { new }
}

/// Returns the number of processes with these last words of their command line.
pub(super) fn count_commands(words: &[String]) -> usize {
    let mut line = words.join("\0");
    line.push('\0');
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text == line.as_bytes())).count()
}

/// Returns the last component of the first word of a process's command line.
fn name(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
    Some(Path::new(&first).file_name()?.to_string_lossy().into_owned())
}

/// Starts a daemon by a command for the shell, in a session of its own: an interrupt from the terminal must not stop it.
pub(super) fn start(command: &str) -> Result<Child, String> {
    let mut shell = Command::new("setsid");
    shell.args(["sh", "-c", &format!("exec {command}")]);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map_err(|error| format!("start the daemon by {command:?}: {error}"))
}
