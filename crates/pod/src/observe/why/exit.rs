//! Description of an exit code.

use crate::{
    Cause, Signal,
    store::{ContainerPhase, ContainerRecord},
};

/// Exit of a container.
#[derive(Clone, Debug)]
pub struct ContainerExit {
    /// Exit code, or 128 + signal; absent if it cannot be determined.
    pub code: Option<i32>,
    /// The signal that terminated it.
    pub signal: Option<i32>,
    /// When it exited, in nanoseconds since the epoch.
    pub at: u64,
    /// Why it exited; absent if that is not on record.
    pub cause: Option<Cause>,
    /// Description, such as `SIGKILL, by the kernel: out of memory`.
    pub words: String,
}

pub(super) fn describe_exit(record: &ContainerRecord) -> Option<ContainerExit> {
    (record.phase == ContainerPhase::Exited).then(|| ContainerExit {
        code: record.exit_code,
        signal: record.signal,
        at: record.finished_at,
        cause: record.cause,
        words: describe(record),
    })
}

/// Describes an exit. Nothing is derived from a record of a daemon that did not store the cause.
fn describe(record: &ContainerRecord) -> String {
    let Some(code) = record.exit_code else {
        return "the exit status is unknown: daemon and monitor were both gone".to_owned();
    };
    let by_pinion = |signal: i32, why: &str| format!("{}, by Pinion: {why}", signal_name(signal));
    match (record.cause, record.signal) {
        (Some(Cause::StartFailed { .. }), _) => "its program could not be started".to_owned(),
        (Some(Cause::Oom { signal: Some(_) }), _) => "SIGKILL, by the kernel: out of memory".to_owned(),
        (Some(Cause::Oom { signal: None }), _) => {
            format!("exit code {code}; the OOM killer killed a process of it")
        }
        (Some(Cause::GraceExpired), _) => by_pinion(9, "it was stopped, and the grace period had expired"),
        (Some(Cause::Killed), _) => by_pinion(9, "it was stopped without a grace period, or removed"),
        (Some(Cause::Stopped { signal }), _) => by_pinion(signal, "it was stopped"),
        (Some(Cause::Request { signal }), _) => by_pinion(signal, "a client requested it (kill)"),
        (Some(Cause::Signal(signal)), _) => describe_signal(signal),
        (Some(Cause::Exited), _) => describe_code(code),
        (None, Some(signal)) => format!("{}; its sender is not on record", signal_name(signal)),
        (Some(Cause::Unknown) | None, _) => format!("exit code {code}; its cause is not on record"),
    }
}

fn describe_code(code: i32) -> String {
    match code {
        0 => "its program exited by itself, without an error".to_owned(),
        126 => "exit code 126: shells return it if a command cannot be executed".to_owned(),
        127 => "exit code 127: shells return it if a command is not found".to_owned(),
        129..=192 => {
            let name = signal_name(code - 128);
            format!(
                "exit code {code}, returned by the program itself; shells return it if a child was killed by {name}"
            )
        }
        _ => format!("its program exited by itself with exit code {code}"),
    }
}

/// Describes a signal that this engine did not send.
fn describe_signal(signal: i32) -> String {
    let sender = match signal {
        4 | 5 | 6 | 7 | 8 | 11 => ": the program failed (a fault of its own, or abort)",
        31 => ": the seccomp filter kills a process that makes this system call",
        _ => ", not by Pinion: by a process of the container or of the node; the kernel does not report which",
    };
    format!("{}{sender}", signal_name(signal))
}

fn signal_name(signal: i32) -> String {
    Signal::from_number(signal).map_or_else(|| format!("signal {signal}"), |signal| signal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(code: Option<i32>, signal: Option<i32>, cause: Option<Cause>) -> String {
        let record = ContainerRecord {
            phase: ContainerPhase::Exited,
            exit_code: code,
            signal,
            cause,
            ..ContainerRecord::default()
        };
        describe_exit(&record).expect("it exited").words
    }

    #[test]
    fn an_exit_is_described_by_its_cause() {
        let by = |code: i32, signal: i32, cause: Cause| description(Some(code), Some(signal), Some(cause));
        let not_by_pinion =
            "not by Pinion: by a process of the container or of the node; the kernel does not report which";
        assert_eq!(by(137, 9, Cause::Signal(9)), format!("SIGKILL, {not_by_pinion}"));
        assert_eq!(by(137, 9, Cause::Killed), "SIGKILL, by Pinion: it was stopped without a grace period, or removed");
        assert_eq!(
            by(137, 9, Cause::GraceExpired),
            "SIGKILL, by Pinion: it was stopped, and the grace period had expired"
        );
        assert_eq!(by(143, 15, Cause::Stopped { signal: 15 }), "SIGTERM, by Pinion: it was stopped");
        assert_eq!(by(130, 2, Cause::Request { signal: 2 }), "SIGINT, by Pinion: a client requested it (kill)");
        assert_eq!(by(137, 9, Cause::Oom { signal: Some(9) }), "SIGKILL, by the kernel: out of memory");
        let fault = "SIGSEGV: the program failed (a fault of its own, or abort)";
        assert_eq!(by(139, 11, Cause::Signal(11)), fault);
        assert!(by(159, 31, Cause::Signal(31)).contains("seccomp"));
        let exited = |code: i32| description(Some(code), None, Some(Cause::Exited));
        assert_eq!(exited(0), "its program exited by itself, without an error");
        assert_eq!(exited(3), "its program exited by itself with exit code 3");
        assert!(exited(137).contains("returned by the program itself"));
        let oom = description(Some(1), None, Some(Cause::Oom { signal: None }));
        assert_eq!(oom, "exit code 1; the OOM killer killed a process of it");
        let failed = description(Some(128), None, Some(Cause::StartFailed { command: None }));
        assert_eq!(failed, "its program could not be started");
        let unknown = "the exit status is unknown: daemon and monitor were both gone";
        assert_eq!(description(None, None, Some(Cause::Unknown)), unknown);
    }

    #[test]
    fn nothing_is_derived_from_a_record_without_a_cause() {
        assert_eq!(description(Some(137), Some(9), None), "SIGKILL; its sender is not on record");
        assert_eq!(description(Some(128), None, None), "exit code 128; its cause is not on record");
    }
}
