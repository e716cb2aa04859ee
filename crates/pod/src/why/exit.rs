//! An exit code in words.

use serde::Serialize;

use crate::container::{ContainerPhase, ContainerRecord};

/// How a container ended.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// Exit code, 128 + signal; absent: it cannot be known.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When, nanoseconds since the epoch.
    pub at: u64,
    /// `SIGKILL, by the kernel: out of memory`, …
    pub words: String,
}

pub(super) fn of(record: &ContainerRecord) -> Option<End> {
    (record.phase == ContainerPhase::Exited).then(|| End {
        code: record.exit_code,
        signal: record.signal,
        at: record.finished_at,
        words: words(record),
    })
}

fn words(record: &ContainerRecord) -> String {
    let Some(code) = record.exit_code else {
        return "nobody saw how it ended: daemon and monitor were both gone".to_owned();
    };
    if record.reason == "StartError" {
        return "its program could not be started".to_owned();
    }
    if record.reason == "OOMKilled" {
        return match record.signal {
            Some(_) => "SIGKILL, by the kernel: out of memory".to_owned(),
            None => format!("exit code {code}; the kernel killed a process of it: out of memory"),
        };
    }
    match (record.signal, code) {
        (Some(signal), _) => format!("{}{}", signal_name(signal), sender(record, signal)),
        (None, 0) => "its program ended by itself, without an error".to_owned(),
        (None, 126) => "exit code 126: a shell says so of a command that it cannot execute".to_owned(),
        (None, 127) => "exit code 127: a shell says so of a command that it cannot find".to_owned(),
        (None, 129..=192) => {
            let name = signal_name(code - 128);
            format!("exit code {code} by the program's own choice; shells say so of a child that {name} ended")
        }
        (None, _) => format!("its program ended by itself with exit code {code}"),
    }
}

/// Who sent it, where that is on record.
fn sender(record: &ContainerRecord, signal: i32) -> String {
    let stages = record.timeline.stages();
    let asked = |what: &str| stages.iter().any(|stage| stage.name.starts_with(what));
    if signal == 9 && asked("stop: every process is killed") {
        return match asked("stop: signal") {
            true => ", by Pinion: it was stopped, and its grace was over".to_owned(),
            false => ", by Pinion: it was stopped without grace, or removed".to_owned(),
        };
    }
    if asked(&format!("stop: signal {signal} sent")) {
        return ", by Pinion: it was asked to stop".to_owned();
    }
    if asked(&format!("signal {signal} sent on request")) {
        return ", by Pinion: somebody asked for it (kill)".to_owned();
    }
    match signal {
        4 | 5 | 6 | 7 | 8 | 11 => ": the program failed (its own fault, or it ended itself with abort)".to_owned(),
        31 => ": the seccomp filter ends who makes the system call that it made".to_owned(),
        _ => ", not by Pinion: by a process of the container or of the node; the kernel does not tell which".to_owned(),
    }
}

fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let named = usize::try_from(signal - 1).ok().and_then(|at| NAMES.get(at));
    named.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: i32, signal: Option<i32>, stages: &[&str]) -> String {
        let mut record = ContainerRecord { exit_code: Some(code), signal, ..ContainerRecord::default() };
        record.phase = ContainerPhase::Exited;
        stages.iter().for_each(|stage| record.enter(stage));
        of(&record).expect("it ended").words
    }

    #[test]
    fn a_signal_has_a_name_and_where_it_is_known_a_sender() {
        assert!(told(137, Some(9), &[]).starts_with("SIGKILL, not by Pinion"));
        assert!(told(137, Some(9), &["stop: every process is killed"]).contains("without grace"));
        let graceful = ["stop: signal 15 sent, 30 s to end", "stop: every process is killed"];
        assert!(told(137, Some(9), &graceful).contains("grace was over"));
        assert!(told(143, Some(15), &graceful[..1]).contains("asked to stop"));
        assert!(told(139, Some(11), &[]).starts_with("SIGSEGV: the program failed"));
        assert!(told(159, Some(31), &[]).contains("seccomp"));
        assert!(told(137, None, &[]).contains("own choice"));
        assert!(told(0, None, &[]).contains("without an error"));
    }
}
