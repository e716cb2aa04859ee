//! Why the first process of a container exited: recorded when it exits, from what the kernel reported and from the
//! signals that this engine sent.

use monitor_api::{CommandError, ExitStatus};
use serde::{Deserialize, Serialize};

/// Reason of a container of which the OOM killer killed a process, as kubelet knows it.
pub(super) const OOM_KILLED: &str = "OOMKilled";
/// Reason of a container whose program could not be started, as kubelet knows it.
pub const START_ERROR: &str = "StartError";

/// Cause of the exit of a container's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It exited by itself.
    Exited,
    /// Its program could not be started.
    StartFailed {
        /// Why the program cannot be executed; `None` if another step of the start failed.
        command: Option<CommandError>,
    },
    /// The OOM killer killed a process of the container.
    Oom {
        /// The signal that terminated the first process; `None` if it exited by itself.
        signal: Option<i32>,
    },
    /// The signal with which a stop begins terminated it within the grace period.
    Stopped {
        /// The signal.
        signal: i32,
    },
    /// It was stopped, and killed after the grace period.
    GraceExpired,
    /// It was stopped without a grace period, or removed.
    Killed,
    /// A signal terminated it that a client requested.
    Request {
        /// The signal.
        signal: i32,
    },
    /// A signal terminated it that this engine did not send.
    Signal(i32),
    /// Neither the daemon nor the monitor was running when it exited.
    Unknown,
}

impl Cause {
    /// Returns the cause of this exit, for a container that these signals were sent to.
    pub(crate) fn new(status: &ExitStatus, sent: &SentSignals) -> Self {
        match (status.oom_killed, status.code, status.signal) {
            // Another process may have been killed for want of memory, long before.
            (true, _, signal) => Self::Oom { signal: signal.filter(|signal| *signal == 9 && !sent.kill) },
            (false, None, _) => Self::Unknown,
            (false, Some(_), None) => Self::Exited,
            (false, Some(_), Some(signal)) => sent.cause(signal),
        }
    }

    /// Returns the reason in a container's status, as kubelet knows it.
    pub(crate) fn reason(self, code: Option<i32>) -> &'static str {
        match self {
            Self::StartFailed { .. } => START_ERROR,
            Self::Oom { .. } => OOM_KILLED,
            Self::Unknown => "Unknown",
            _ if code == Some(0) => "Completed",
            _ => "Error",
        }
    }

    /// Returns the details of the reason, for people; empty if the exit code has them all.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Oom { signal: Some(_) } => {
                "SIGKILL by the kernel: the container ran out of memory; raise its memory limit"
            }
            Self::Oom { signal: None } => {
                "a process of the container was killed by the kernel: out of memory; raise its memory limit"
            }
            Self::Unknown => "exit status unknown: it exited while neither the daemon nor its monitor was running",
            Self::GraceExpired => "SIGKILL by Pinion: it was stopped, and the grace period had expired",
            Self::Signal(4) => "SIGILL: the program executed an invalid instruction",
            Self::Signal(6) => "SIGABRT: the program aborted",
            Self::Signal(7) => "SIGBUS: the program accessed memory that is not available",
            Self::Signal(8) => "SIGFPE: an arithmetic error of the program",
            Self::Signal(9) => {
                "SIGKILL by a process of the container or of the node: Pinion has no record of sending it"
            }
            Self::Signal(11) => "SIGSEGV: the program accessed invalid memory",
            Self::Signal(31) => "SIGSYS: its seccomp profile kills a process that makes this system call",
            _ => "",
        }
    }
}

/// A signal that this engine sends to a container.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    /// The signal with which a stop begins, to the first process.
    Stop(i32),
    /// SIGKILL to every process: the grace period expired, there is none, or the container is being removed.
    Kill,
    /// A signal that a client requested.
    Request(i32),
}

/// The signals that this engine sent to a container. A part of its record, but not a reason to write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SentSignals {
    stop: Option<i32>,
    kill: bool,
    /// Those that clients requested: bit n - 1 for signal n.
    requested: u64,
}

impl SentSignals {
    pub(crate) fn add(&mut self, sent: Sent) {
        match sent {
            Sent::Stop(signal) => self.stop = Some(signal),
            Sent::Kill => self.kill = true,
            Sent::Request(signal) => self.requested |= bit(signal),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a stop or removal has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_some() || self.kill
    }

    /// Returns the cause of an exit by this signal.
    fn cause(&self, signal: i32) -> Cause {
        const SIGKILL: i32 = 9;
        match self.stop {
            Some(_) if self.kill && signal == SIGKILL => Cause::GraceExpired,
            None if self.kill && signal == SIGKILL => Cause::Killed,
            Some(stop) if stop == signal => Cause::Stopped { signal },
            _ if self.requested & bit(signal) != 0 => Cause::Request { signal },
            _ => Cause::Signal(signal),
        }
    }
}

/// Returns the bit of a signal; 0 for a number that is none.
fn bit(signal: i32) -> u64 {
    u32::try_from(signal).ok().and_then(|signal| 1u64.checked_shl(signal.checked_sub(1)?)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Option<i32>, signal: Option<i32>, oom_killed: bool) -> ExitStatus {
        ExitStatus { code, signal, oom_killed, at: 1 }
    }

    fn cause(signal: i32, sent: &[Sent]) -> Cause {
        let mut signals = SentSignals::default();
        sent.iter().for_each(|one| signals.add(*one));
        Cause::new(&status(Some(128 + signal), Some(signal), false), &signals)
    }

    #[test]
    fn a_signal_is_attributed_to_the_operation_that_sent_it() {
        assert_eq!(cause(9, &[]), Cause::Signal(9));
        assert_eq!(cause(9, &[Sent::Kill]), Cause::Killed);
        assert_eq!(cause(9, &[Sent::Stop(15), Sent::Kill]), Cause::GraceExpired);
        assert_eq!(cause(15, &[Sent::Stop(15)]), Cause::Stopped { signal: 15 });
        assert_eq!(cause(15, &[Sent::Stop(15), Sent::Kill]), Cause::Stopped { signal: 15 });
        assert_eq!(cause(2, &[Sent::Stop(15)]), Cause::Signal(2));
        assert_eq!(cause(64, &[Sent::Request(10), Sent::Request(64)]), Cause::Request { signal: 64 });
        assert_eq!(cause(9, &[Sent::Request(9)]), Cause::Request { signal: 9 });
        assert_eq!(cause(65, &[Sent::Request(1)]), Cause::Signal(65));
    }

    #[test]
    fn what_the_kernel_reports_has_precedence() {
        let sent = SentSignals { kill: true, ..SentSignals::default() };
        let by_the_kernel = Cause::new(&status(Some(137), Some(9), true), &SentSignals::default());
        assert_eq!(by_the_kernel, Cause::Oom { signal: Some(9) });
        // A process was killed for want of memory, and the container ended otherwise.
        assert_eq!(Cause::new(&status(Some(137), Some(9), true), &sent), Cause::Oom { signal: None });
        assert_eq!(Cause::new(&status(Some(143), Some(15), true), &sent), Cause::Oom { signal: None });
        assert_eq!(Cause::new(&status(Some(1), None, true), &sent), Cause::Oom { signal: None });
        assert_eq!(Cause::new(&status(Some(0), None, false), &sent), Cause::Exited);
        assert_eq!(Cause::new(&status(None, None, false), &sent), Cause::Unknown);
    }

    #[test]
    fn a_cause_is_stored_under_its_name() {
        let stored = |cause: Cause| serde_json::to_string(&cause).expect("JSON");
        assert_eq!(stored(Cause::GraceExpired), r#""grace_expired""#);
        assert_eq!(stored(Cause::Signal(9)), r#"{"signal":9}"#);
        let failed = Cause::StartFailed { command: Some(CommandError::NotFound) };
        assert_eq!(stored(failed), r#"{"start_failed":{"command":"not_found"}}"#);
        assert_eq!(serde_json::from_str::<Cause>(&stored(failed)).expect("a cause"), failed);
    }
}
