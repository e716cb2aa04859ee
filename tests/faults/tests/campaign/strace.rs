//! Attaches strace(1) to a process of a node from outside of the node.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Node, Process};

use crate::point::Point;

/// A bound for failing runs.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A running strace. Detaches when dropped.
pub(crate) struct Tracer {
    child: Child,
    output: PathBuf,
    /// Pid of the traced process.
    pid: i32,
}

impl Tracer {
    /// Attaches to all threads of a process. With `follow`, also traces the processes that it clones from now on.
    /// Returns when strace is attached; panics if strace cannot be started.
    pub(crate) fn attach(pid: i32, follow: bool, point: Option<&Point>, output: PathBuf) -> Self {
        let mut command = Command::new("strace");
        if follow {
            command.args(["-f", "-b", "execve"]);
        }
        command.arg("-o").arg(&output).args(arguments(point)).arg("-p").arg(pid.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start strace; scripts/setup campaign installs it");
        let mut messages = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let attached = messages.by_ref().map_while(Result::ok).any(|line| line.contains(" attached"));
        // The messages are drained, so that strace never blocks on them.
        thread::spawn(move || messages.for_each(drop));
        if !attached {
            let status = child.wait();
            panic!("strace did not attach to {pid}: {status:?}");
        }
        Self { child, output, pid }
    }

    /// Whether the fault was injected.
    pub(crate) fn injected(&self) -> bool {
        !injected(&fs::read_to_string(&self.output).unwrap_or_default()).is_empty()
    }

    /// Detaches and returns the trace.
    pub(crate) fn detach(mut self) -> String {
        self.end();
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Signals strace to detach. If the traced process was killed, strace may hang waiting for its threads, so strace
    /// is killed, too.
    fn end(&mut self) {
        let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) else { return };
        let start = Instant::now();
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let is_dead = status.is_empty() || status.contains("State:\tZ") || status.contains("State:\tX");
        let mut signal = Some(if is_dead { Signal::KILL } else { Signal::TERM });
        while matches!(self.child.try_wait(), Ok(None)) {
            if let Some(signal) = signal.take() {
                let _ = kill_process(pid, signal);
            }
            if start.elapsed() > TIMEOUT {
                signal = Some(Signal::KILL);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the arguments of strace to inject the fault of a point, or to trace every call with its time.
pub(crate) fn arguments(point: Option<&Point>) -> Vec<String> {
    match point {
        // -y prints the paths of descriptors.
        Some(point) => vec!["-y".into(), format!("--trace={}", point.call), format!("--inject={}", point.injection())],
        None => vec!["-ttt".into(), "-s0".into()],
    }
}

/// Returns the pid, in the PID namespace of the test, of a process of a node.
pub(crate) fn outer_pid(node: &Node, process: &Process) -> Option<i32> {
    let namespace = fs::read_link(format!("/proc/{}/ns/pid", node.init_pid())).ok()?;
    let entries = fs::read_dir("/proc").ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
        let directory = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(directory.join("status")).unwrap_or_default();
        let inner =
            status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().next_back()?.parse().ok());
        inner == Some(process.pid) && fs::read_link(directory.join("ns/pid")).is_ok_and(|link| link == namespace)
    })
}

/// Parses the name, thread and time (in seconds) of a traced call. Returns `None` for other lines.
fn call(line: &str) -> Option<(&str, &str, f64)> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let (thread, time) = if first.contains('.') { ("", first) } else { (first, words.next()?) };
    let rest = words.next()?;
    let name = &rest[..rest.find('(')?];
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, thread, time.parse().ok()?))
}

/// Counts the calls in each of the time spans that end at `ends` (seconds since the epoch): for each name, the maximum
/// over all threads.
pub(crate) fn count(trace: &str, ends: &[f64]) -> Vec<BTreeMap<String, u64>> {
    let mut each: Vec<BTreeMap<(String, String), u64>> = vec![BTreeMap::new(); ends.len()];
    for (name, thread, time) in trace.lines().filter_map(call) {
        if let Some(span) = ends.iter().position(|end| time < *end) {
            *each[span].entry((name.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let maxima = |span: BTreeMap<(String, String), u64>| {
        let mut maxima: BTreeMap<String, u64> = BTreeMap::new();
        for ((name, _), calls) in span {
            let max = maxima.entry(name).or_default();
            *max = calls.max(*max);
        }
        maxima
    };
    each.into_iter().map(maxima).collect()
}

/// Returns the lines of the calls into which the fault was injected; for an unfinished call, the line of its start.
pub(crate) fn injected(trace: &str) -> Vec<&str> {
    let marks = ["(INJECTED)", "(DELAYED)", "+++ killed by SIGKILL"];
    let lines: Vec<&str> = trace.lines().collect();
    let start_line = |index: usize| {
        let (thread, rest) = lines[index].split_once(' ')?;
        let name = rest.trim_start().strip_prefix("<... ")?.split(' ').next()?;
        let is_start = |line: &&&str| {
            line.ends_with("<unfinished ...>")
                && line.split_once(' ').is_some_and(|(of, call)| of == thread && call.trim_start().starts_with(name))
        };
        lines[..index].iter().rev().find(is_start).copied()
    };
    let is_hit = |index: &usize| marks.iter().any(|mark| lines[*index].contains(mark));
    (0..lines.len()).filter(is_hit).map(|index| start_line(index).unwrap_or(lines[index])).collect()
}
