//! Checks the virtual machine of a pod, so that one that hangs is noticed although nothing is requested of it. One task for
//! each; it ends with the virtual machine monitor.
//!
//! ```text
//! every 30 s   state in the virtual machine monitor, the time to the agent
//!   stopped by a failure            ─▶ the virtual machine is ended at once
//!   paused, or neither answers      ─▶ it is ended when the guest was silent for `silence_timeout`
//! ```
//! An answer that comes too late is one: a guest that is slow is not ended. One that was paused, with the node or by itself, gets the
//! right time by the next check.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use agent_api::Configuration;
use vm::vmm::{Status, Vmm};

use super::{
    connection::connection,
    end::end_machine,
    pause::{Interruption, continue_interrupted},
    ports::remove_leftover_ports,
    process::find_process,
};
use crate::{
    ErrorKind, VmProcess,
    node::Handler,
    parts::Parts,
    store::{Container, ContainerPhase, Sandbox, VmConnection},
};

/// Time between two checks, unless the time limit of silence is shorter than some of them.
const INTERVAL: Duration = Duration::from_secs(30);
/// Least number of checks in a row that fail before a guest is given up: this process may have been stopped itself.
const CHECKS_MIN: u32 = 4;
/// By how much the clock of a guest may differ, in nanoseconds: requests take some time.
const TIME_TOLERANCE: u64 = 1_000_000_000;
/// How long an answer is waited for, unless checks are more frequent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of silence of pods whose handler is not configured anymore.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// What a check found.
enum Finding {
    Answered,
    /// It does not continue by itself.
    Failed(String),
    /// Nothing about the guest.
    Unknown,
    /// Why no answer came, and when the agent sent something for the last time.
    Silent(String, Option<Instant>),
}

/// How long a guest has been silent.
struct Silence {
    limit: Duration,
    received: Instant,
    failed_checks: u32,
}

impl Silence {
    fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, received: now, failed_checks: 0 }
    }

    fn interval(&self) -> Duration {
        INTERVAL.min(self.limit / CHECKS_MIN)
    }

    /// Returns why the virtual machine is to be ended, if it is.
    fn judge(&mut self, finding: Finding, now: Instant) -> Option<String> {
        match finding {
            Finding::Failed(reason) => return Some(reason),
            Finding::Unknown => {}
            Finding::Answered => *self = Self::new(self.limit, now),
            Finding::Silent(reason, received) => {
                if let Some(received) = received.filter(|received| *received > self.received) {
                    *self = Self::new(self.limit, received);
                }
                self.failed_checks += 1;
                let silence = now.saturating_duration_since(self.received);
                if self.failed_checks >= CHECKS_MIN && silence >= self.limit {
                    return Some(format!("the guest has been silent for {} s: {reason}", silence.as_secs()));
                }
            }
        }
        None
    }
}

/// Checks the virtual machine of a pod from now on, if it has one. Called once for each, when all containers of the pod are
/// registered.
pub(crate) fn check_health(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) {
    let Some(hypervisor) = find_process(parts, sandbox.id(), VmProcess::Hypervisor) else { return };
    let limit = match parts.node.handlers.get(&sandbox.config().runtime_handler) {
        Ok(Handler::Vm(hypervisor)) => hypervisor.handler.silence_timeout,
        _ => SILENCE_TIMEOUT,
    };
    let (parts, sandbox) = (Arc::downgrade(parts), Arc::clone(sandbox));
    offload::spawn(async move {
        let mut record = hypervisor.watch();
        let exited = async {
            let _ = record.wait_for(|record| record.phase == ContainerPhase::Exited).await;
        };
        let reason = tokio::select! {
            biased;
            () = exited => return,
            reason = failure(&parts, &sandbox, Silence::new(limit, Instant::now())) => reason,
        };
        if let (Some(reason), Some(parts)) = (reason, parts.upgrade()) {
            end(&parts, &sandbox, &hypervisor, &reason).await;
        }
    });
}

/// Checks until the virtual machine is to be ended, and returns why. `None`: the engine was dropped.
async fn failure(parts: &Weak<Parts>, sandbox: &Sandbox, mut silence: Silence) -> Option<String> {
    loop {
        let finding = examine(&*parts.upgrade()?, sandbox, ANSWER_TIMEOUT.min(silence.interval())).await;
        if let Some(reason) = silence.judge(finding, Instant::now()) {
            return Some(reason);
        }
        tokio::time::sleep(silence.interval()).await;
    }
}

async fn examine(parts: &Parts, sandbox: &Sandbox, patience: Duration) -> Finding {
    let connected = match continue_interrupted(parts, sandbox).await {
        Ok(Interruption::InProgress) => return Finding::Unknown,
        Ok(Interruption::None) => connection(parts, sandbox).await,
        Err(error) => Err(error),
    };
    match connected {
        // What fails on the node, and an agent of another version, is not silence.
        Err(error) if !matches!(error.kind, ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => {
            tracing::warn!(pod = sandbox.id().as_str(), "check the virtual machine of the pod: {error}");
            Finding::Unknown
        }
        Err(error) => Finding::Silent(error.message, None),
        Ok(connection) => {
            // What takes longer is continued by the next check.
            let _ = tokio::time::timeout(INTERVAL, remove_leftover_ports(parts, sandbox, &connection.qemu)).await;
            check(&connection, patience).await
        }
    }
}

async fn check(connection: &VmConnection, patience: Duration) -> Finding {
    let silent = |reason: String| Finding::Silent(reason, Some(connection.guest.last_received()));
    match tokio::time::timeout(patience, connection.qemu.status()).await {
        Ok(Ok(Status::Running)) => {}
        Ok(Ok(Status::Failed(fault))) => return Finding::Failed(fault.to_string()),
        Ok(Ok(Status::Stopped)) => return Finding::Failed("the guest shut down".to_owned()),
        Ok(Ok(Status::Paused | Status::Created)) => return silent("it is paused".to_owned()),
        Ok(Err(error)) => return silent(error.to_string()),
        Err(_) => return silent("the virtual machine monitor does not answer".to_owned()),
    }
    let time =
        Configuration { time: Some(crate::clock::now()), time_tolerance: TIME_TOLERANCE, ..Configuration::default() };
    match tokio::time::timeout(patience, connection.guest.configure(time)).await {
        Ok(Ok(())) => Finding::Answered,
        Ok(Err(error)) => silent(error.to_string()),
        Err(_) => silent("the agent in the guest does not answer".to_owned()),
    }
}

/// Ends the virtual machine. Its pod is then stopped, as if its monitor had ended by itself.
async fn end(parts: &Arc<Parts>, sandbox: &Sandbox, hypervisor: &Container, reason: &str) {
    tracing::error!(pod = sandbox.id().as_str(), reason, "the virtual machine of a pod has failed, and is ended");
    let recorded = parts.registry.update_sandbox(sandbox, |record| {
        record.enter(&format!("its virtual machine has failed, and is ended: {reason}"));
    });
    if let Err(error) = recorded {
        tracing::warn!(pod = sandbox.id().as_str(), "{error}");
    }
    end_machine(parts, hypervisor, reason).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    fn silent(received: Option<Instant>) -> Finding {
        Finding::Silent("no answer".to_owned(), received)
    }

    #[test]
    fn a_guest_is_given_up_after_the_time_limit_and_several_checks() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut silence = Silence::new(LIMIT, begin);
        for seconds in [30, 60, 90, 119] {
            assert_eq!(silence.judge(silent(None), at(seconds)), None);
        }
        let reason = silence.judge(silent(None), at(150)).expect("given up");
        assert_eq!(reason, "the guest has been silent for 150 s: no answer");

        let mut silence = Silence::new(LIMIT, begin);
        assert_eq!(silence.judge(silent(None), at(1000)), None, "this process itself may have been stopped");
    }

    #[test]
    fn any_answer_ends_the_silence() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut silence = Silence::new(LIMIT, begin);
        for round in 1..10 {
            assert_eq!(silence.judge(silent(None), at(100 * round)), None);
            assert_eq!(silence.judge(Finding::Answered, at(100 * round + 50)), None);
        }
        // Each answer comes too late for its ping.
        for round in 10..20 {
            assert_eq!(silence.judge(silent(Some(at(100 * round - 1))), at(100 * round)), None);
        }
    }

    #[test]
    fn what_fails_on_the_node_is_not_silence() {
        let begin = Instant::now();
        let mut silence = Silence::new(LIMIT, begin);
        for round in 1..100 {
            assert_eq!(silence.judge(Finding::Unknown, begin + Duration::from_secs(30 * round)), None);
        }
    }

    #[test]
    fn a_failure_is_not_waited_for() {
        let mut silence = Silence::new(LIMIT, Instant::now());
        let failed = Finding::Failed("an I/O error".to_owned());
        assert_eq!(silence.judge(failed, Instant::now()).as_deref(), Some("an I/O error"));
    }

    #[test]
    fn short_limits_have_as_many_checks() {
        assert_eq!(Silence::new(LIMIT, Instant::now()).interval(), INTERVAL);
        assert_eq!(Silence::new(Duration::from_secs(8), Instant::now()).interval(), Duration::from_secs(2));
    }
}
