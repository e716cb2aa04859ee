//! Description of an exit code.

use serde::Serialize;

use crate::{
    Signal,
    store::{ContainerPhase, ContainerRecord},
};

/// Exit of a container.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerExit {
    /// Exit code, or 128 + signal; absent if it cannot be determined.
    pub code: Option<i32>,
    /// The signal that terminated it.
    pub signal: Option<i32>,
    /// When it exited, in nanoseconds since the epoch.
    pub at: u64,
    /// Description, such as `SIGKILL, by the kernel: out of memory`.
    pub words: String,
}

pub(super) fn describe_exit(record: &ContainerRecord) -> Option<ContainerExit> {
    (record.phase == ContainerPhase::Exited).then(|| ContainerExit {
        code: record.exit_code,
        signal: record.signal,
        at: record.finished_at,
        words: describe(record),
    })
}

fn describe(record: &ContainerRecord) -> String {
    let Some(code) = record.exit_code else {
        return "the exit status is unknown: daemon and monitor were both gone".to_owned();
    };
    if record.reason == "StartError" {
        return "its program could not be started".to_owned();
    }
    if record.reason == "OOMKilled" {
        return match record.signal {
            Some(_) => "SIGKILL, by the kernel: out of memory".to_owned(),
            None => format!("exit code {code}; the OOM killer killed a process of it"),
        };
    }
    match (record.signal, code) {
        (Some(signal), _) => format!("{}{}", signal_name(signal), sender(record, signal)),
        (None, 0) => "its program exited by itself, without an error".to_owned(),
        (None, 126) => "exit code 126: shells return it if a command cannot be executed".to_owned(),
        (None, 127) => "exit code 127: shells return it if a command is not found".to_owned(),
        (None, 129..=192) => {
            let name = signal_name(code - 128);
            format!(
                "exit code {code}, returned by the program itself; shells return it if a child was killed by {name}"
            )
        }
        (None, _) => format!("its program exited by itself with exit code {code}"),
    }
}

/// Describes the sender of a signal, if it is on record.
fn sender(record: &ContainerRecord, signal: i32) -> String {
    let stages = record.timeline.stages();
    let has_stage = |prefix: &str| stages.iter().any(|stage| stage.name.starts_with(prefix));
    if signal == 9 && has_stage("stop: every process is killed") {
        return match has_stage("stop: signal") {
            true => ", by Pinion: it was stopped, and the grace period had expired".to_owned(),
            false => ", by Pinion: it was stopped without a grace period, or removed".to_owned(),
        };
    }
    if has_stage(&format!("stop: signal {signal} sent")) {
        return ", by Pinion: it was stopped".to_owned();
    }
    if has_stage(&format!("signal {signal} sent on request")) {
        return ", by Pinion: a client requested it (kill)".to_owned();
    }
    match signal {
        4 | 5 | 6 | 7 | 8 | 11 => ": the program failed (a fault of its own, or abort)".to_owned(),
        31 => ": the seccomp filter kills a process that makes this system call".to_owned(),
        _ => {
            ", not by Pinion: by a process of the container or of the node; the kernel does not report which".to_owned()
        }
    }
}

fn signal_name(signal: i32) -> String {
    Signal::from_number(signal).map_or_else(|| format!("signal {signal}"), |signal| signal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(code: i32, signal: Option<i32>, stages: &[&str]) -> String {
        let mut record = ContainerRecord { exit_code: Some(code), signal, ..ContainerRecord::default() };
        record.phase = ContainerPhase::Exited;
        stages.iter().for_each(|stage| record.enter(stage));
        describe_exit(&record).expect("it exited").words
    }

    #[test]
    fn a_signal_is_described_by_name_and_sender() {
        assert!(description(137, Some(9), &[]).starts_with("SIGKILL, not by Pinion"));
        assert!(description(137, Some(9), &["stop: every process is killed"]).contains("without a grace period"));
        let graceful = ["stop: signal 15 sent, 30 s to end", "stop: every process is killed"];
        assert!(description(137, Some(9), &graceful).contains("grace period had expired"));
        assert!(description(143, Some(15), &graceful[..1]).contains("by Pinion: it was stopped"));
        assert!(description(139, Some(11), &[]).starts_with("SIGSEGV: the program failed"));
        assert!(description(159, Some(31), &[]).contains("seccomp"));
        assert!(description(137, None, &[]).contains("returned by the program itself"));
        assert!(description(0, None, &[]).contains("without an error"));
    }
}
