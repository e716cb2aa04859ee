//! Usage of containers in virtual machines: requested from their guests, whose last answer is the sample. No request
//! waits for a guest that has left the previous one unanswered, so that one guest delays no list of all containers.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use agent_api::Statistics;
use cgroup::Stats;

use super::{
    known_sample::{FRESH, STALE, is_younger},
    subjects::{Subjects, Targets},
};
use crate::{
    Error, ErrorKind, ExpensiveStats, clock,
    store::{Container, VmConnection},
};

/// How long a list waits for guests.
pub(super) const LIST_PATIENCE: Duration = Duration::from_millis(50);
/// How long a request about one pod waits for its guest.
pub(super) const POD_PATIENCE: Duration = Duration::from_secs(2);
/// Pause of a thread that waits for guests.
const PAUSE: Duration = Duration::from_millis(1);
/// How long an answer is waited for in the background.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Requests the usage of those of these containers that are in virtual machines, and waits for it, for at most `patience`. Needs the
/// runtime of tokio.
pub(super) async fn refresh(subjects: &Subjects, targets: &Targets, patience: Duration) {
    request_due(subjects, targets);
    for container in targets.containers.iter().filter(|container| is_in_guest(container)) {
        let mut requested = container.guest_usage.requested.subscribe();
        let since = *requested.borrow_and_update();
        if let Some(since) = since {
            let answered = requested.wait_for(Option::is_none);
            let _ = tokio::time::timeout_at((since + patience).into(), answered).await;
        }
    }
}

/// As [`refresh`], on a thread that may block, within the runtime of tokio.
pub(super) fn refresh_blocking(subjects: &Subjects, targets: &Targets) {
    request_due(subjects, targets);
    let is_waited_for = |container: &Arc<Container>| {
        let since = *container.guest_usage.requested.borrow();
        is_in_guest(container) && since.is_some_and(|since| since.elapsed() < LIST_PATIENCE)
    };
    while targets.containers.iter().any(is_waited_for) {
        std::thread::sleep(PAUSE);
    }
}

/// Begins the requests to guests for containers without a fresh usage.
fn request_due(subjects: &Subjects, targets: &Targets) {
    let now = clock::now();
    for container in targets.containers.iter().filter(|container| is_in_guest(container) && !is_fresh(container, now)) {
        let Ok(sandbox) = subjects.registry.sandbox(&container.metadata.sandbox) else { continue };
        // The holder of the lock connects: the next request finds the connection.
        let Ok(connection) = sandbox.vm.try_lock().map(|connection| connection.clone()) else { continue };
        let Some(connection) = connection.filter(|connection| !connection.is_closed()) else {
            forget(container);
            continue;
        };
        let is_first = container.guest_usage.requested.send_if_modified(|requested| {
            let is_first = requested.is_none();
            requested.get_or_insert_with(Instant::now);
            is_first
        });
        if is_first {
            tokio::spawn(request(Arc::clone(container), connection));
        }
    }
}

/// Returns how long a request for these objects waits for guests: if they are of one pod, that delays no other.
pub(super) fn patience(targets: &Targets) -> Duration {
    let mut pods = targets.containers.iter().map(|container| &container.metadata.sandbox);
    let first = pods.next();
    if pods.all(|pod| Some(pod) == first) { POD_PATIENCE } else { LIST_PATIENCE }
}

/// Whether the usage of a container is that in a guest.
pub(super) fn is_in_guest(container: &Container) -> bool {
    container.metadata.vm.is_some()
}

/// Whether there is a usage that was reported after this time.
pub(super) fn is_newer(container: &Container, at: Option<u64>) -> bool {
    lock(container).is_some_and(|(last, _)| at.is_none_or(|at| last > at))
}

/// Whether a guest has not answered its last request. Its previous answer is not reported again: clients that compute rates fail with
/// two samples of one time.
pub(super) fn is_silent(container: &Container) -> bool {
    let since = *container.guest_usage.requested.borrow();
    is_in_guest(container) && (lock(container).is_none() || since.is_some_and(|since| since.elapsed() >= LIST_PATIENCE))
}

/// Forgets what a guest reported before.
fn forget(container: &Container) {
    *container.guest_usage.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Returns when the usage of a container was measured, and the usage.
///
/// # Errors
/// `Unavailable` if its guest has not reported it for a while.
pub(super) fn last(container: &Container) -> Result<(u64, Stats, ExpensiveStats), Error> {
    let last = lock(container).filter(|(at, _)| is_younger(*at, STALE, clock::now()));
    let (at, usage) = last.ok_or_else(|| not_reported(container))?;
    let expensive = ExpensiveStats {
        at,
        processes: bounded(usage.processes),
        oom_kills: bounded(usage.oom_kills),
        ..ExpensiveStats::default()
    };
    Ok((at, stats(&usage), expensive))
}

pub(super) fn not_reported(container: &Container) -> Error {
    let message = format!("measure container {}: its guest has not reported its usage", container.id());
    Error::new(ErrorKind::Unavailable, message)
}

fn lock(container: &Container) -> Option<(u64, Statistics)> {
    *container.guest_usage.last.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_fresh(container: &Container, now: u64) -> bool {
    lock(container).is_some_and(|(at, _)| is_younger(at, FRESH, now))
}

async fn request(container: Arc<Container>, connection: Arc<VmConnection>) {
    let answer = tokio::time::timeout(TIMEOUT, connection.guest.statistics(container.guest_id().as_str())).await;
    match answer {
        Ok(Ok(usage)) => {
            let usage = Some((clock::now(), usage));
            *container.guest_usage.last.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        }
        Ok(Err(error)) => {
            forget(&container);
            tracing::debug!(container = container.id().as_str(), "{error}");
        }
        Err(_) => {
            forget(&container);
            tracing::debug!(container = container.id().as_str(), "the guest does not report its usage");
        }
    }
    container.guest_usage.requested.send_replace(None);
}

fn stats(usage: &Statistics) -> Stats {
    Stats {
        cpu_usage_ns: bounded(usage.cpu_usage_ns),
        cpu_user_ns: bounded(usage.cpu_user_ns),
        cpu_system_ns: bounded(usage.cpu_system_ns),
        cpu_periods: bounded(usage.cpu_periods),
        cpu_throttled_periods: bounded(usage.cpu_throttled_periods),
        cpu_throttled_ns: bounded(usage.cpu_throttled_ns),
        memory_usage: bounded(usage.memory_usage),
        memory_working_set: bounded(usage.memory_working_set),
        memory_rss: bounded(usage.memory_rss),
        memory_limit: usage.memory_limit.map(bounded),
        memory_file: bounded(usage.memory_file),
        page_faults: bounded(usage.page_faults),
        major_page_faults: bounded(usage.major_page_faults),
        swap_usage: usage.swap_usage.map(bounded),
        pids: bounded(usage.pids),
        pids_limit: usage.pids_limit.map(bounded),
        ..Stats::default()
    }
}

/// Kubelet computes with signed numbers.
fn bounded(value: u64) -> u64 {
    value.min(i64::MAX.cast_unsigned())
}
