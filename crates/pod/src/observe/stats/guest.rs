//! Usage of containers in virtual machines: requested from their guests, whose last answer is the sample. No request
//! waits for a guest that has left the previous one unanswered, so that one guest delays no list of all containers.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use agent_api::Statistics;
use cgroup::Stats;

use super::{
    known_sample::{FRESH, STALE, is_younger},
    subjects::{Subjects, Targets},
};
use crate::{
    Error, ErrorKind, ExpensiveStats, SandboxId, clock,
    store::{Container, GuestUsage, VmConnection},
};

/// How long a list of containers of several pods waits for guests.
const LIST_PATIENCE: Duration = Duration::from_millis(50);
/// How long a request about one pod waits for its guest.
const POD_PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer is waited for in the background.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Requests the usage of those of these containers that are in virtual machines, and waits for it a little.
pub(super) async fn refresh(subjects: &Subjects, targets: &Targets) {
    let now = clock::now();
    let is_due = |container: &&Arc<Container>| container.metadata.vm.is_some() && !is_fresh(container, now);
    let mut requests = Vec::new();
    for container in targets.containers.iter().filter(is_due) {
        let Ok(sandbox) = subjects.registry.sandbox(&container.metadata.sandbox) else { continue };
        // The holder of the lock connects: the next request finds the connection.
        let connection = sandbox.vm.try_lock().ok().and_then(|connection| connection.clone());
        if let Some(connection) = connection
            && !container.is_guest_requested.swap(true, Ordering::AcqRel)
        {
            requests.push(tokio::spawn(request(Arc::clone(container), connection)));
        }
    }
    let patience = if is_one_pod(targets) { POD_PATIENCE } else { LIST_PATIENCE };
    let answers = async {
        for request in requests {
            let _ = request.await;
        }
    };
    let _ = tokio::time::timeout(patience, answers).await;
}

/// Returns when the usage of a container was measured, and the usage.
///
/// # Errors
/// `Unavailable` if its guest has not reported it for a while.
pub(super) fn last(container: &Container) -> Result<(u64, Stats, ExpensiveStats), Error> {
    let last = container.guest_usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let last = last.filter(|last| is_younger(last.at, STALE, clock::now()));
    let last = last.ok_or_else(|| {
        let message = format!("measure container {}: its guest has not reported its usage", container.id());
        Error::new(ErrorKind::Unavailable, message)
    })?;
    let usage = &last.usage;
    let expensive = ExpensiveStats {
        at: last.at,
        processes: usage.processes,
        oom_kills: usage.oom_kills,
        ..ExpensiveStats::default()
    };
    Ok((last.at, stats(usage), expensive))
}

fn is_fresh(container: &Container, now: u64) -> bool {
    let last = container.guest_usage.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_ref().is_some_and(|last| is_younger(last.at, FRESH, now))
}

fn is_one_pod(targets: &Targets) -> bool {
    let of_containers = targets.containers.iter().map(|container| &container.metadata.sandbox);
    let pods: HashSet<&SandboxId> = of_containers.chain(targets.sandboxes.iter().map(|sandbox| sandbox.id())).collect();
    pods.len() == 1
}

async fn request(container: Arc<Container>, connection: Arc<VmConnection>) {
    let answer = tokio::time::timeout(TIMEOUT, connection.guest.statistics(container.id().as_str())).await;
    match answer {
        Ok(Ok(usage)) => {
            let usage = GuestUsage { at: clock::now(), usage };
            *container.guest_usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(usage));
        }
        Ok(Err(error)) => tracing::debug!(container = container.id().as_str(), "{error}"),
        Err(_) => tracing::debug!(container = container.id().as_str(), "the guest does not report its usage"),
    }
    container.is_guest_requested.store(false, Ordering::Release);
}

fn stats(usage: &Statistics) -> Stats {
    Stats {
        cpu_usage_ns: usage.cpu_usage_ns,
        cpu_user_ns: usage.cpu_user_ns,
        cpu_system_ns: usage.cpu_system_ns,
        cpu_periods: usage.cpu_periods,
        cpu_throttled_periods: usage.cpu_throttled_periods,
        cpu_throttled_ns: usage.cpu_throttled_ns,
        memory_usage: usage.memory_usage,
        memory_working_set: usage.memory_working_set,
        memory_rss: usage.memory_rss,
        memory_limit: usage.memory_limit,
        memory_file: usage.memory_file,
        page_faults: usage.page_faults,
        major_page_faults: usage.major_page_faults,
        swap_usage: usage.swap_usage,
        pids: usage.pids,
        pids_limit: usage.pids_limit,
        ..Stats::default()
    }
}
