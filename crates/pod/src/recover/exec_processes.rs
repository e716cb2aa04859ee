//! Exec'd processes that outlived both the daemon and the monitor: their clients are gone, and nothing else would kill
//! them.
//!
//! Processes that an exec'd process left behind when it exited belong to the container, and stay alive. The two are
//! distinguished by the PID namespace of the parent: the parent of an exec'd process is outside of the container's PID
//! namespace. In a container that shares the node's PID namespace they cannot be distinguished, and stay alive.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use cgroup::Group;

use crate::{
    error::failed,
    operation::blocking,
    parts::Parts,
    store::{Container, ContainerPhase, identifier},
};

/// Number of containers that are inspected between two pauses: requests are served in the meantime.
const BATCH: usize = 16;
const PAUSE: Duration = Duration::from_millis(20);
/// How often the parent of a process is looked up again if the parent exited during the lookup.
const PARENTS_MAX: usize = 16;
/// Delay from the start of the engine to the first inspection: serving requests has priority.
const START_DELAY: Duration = Duration::from_millis(500);

/// Kills the exec'd processes of an earlier daemon, with all their descendants, in the containers that were running
/// when this daemon started. Execs of this daemon are known to [`crate::monitor::Monitor::has_requested`].
pub(super) async fn kill_orphaned(parts: Weak<Parts>) {
    let running = |parts: Arc<Parts>| {
        let mut running = parts.registry.containers();
        running.retain(|container| container.record().phase == ContainerPhase::Running);
        running
    };
    tokio::time::sleep(START_DELAY).await;
    for batch in parts.upgrade().map(running).unwrap_or_default().chunks(BATCH) {
        let Some(parts) = parts.upgrade() else { return };
        let batch = batch.to_vec();
        let orphaned = blocking(move || Ok(batch.iter().flat_map(|one| kill_in(&parts, one)).collect::<Vec<Group>>()));
        let orphaned = orphaned.await.unwrap_or_default();
        if !orphaned.is_empty() {
            // Not waited for: a process that hangs in the kernel must not delay the others.
            offload::blocking(move || orphaned.into_iter().for_each(remove));
        }
        tokio::time::sleep(PAUSE).await;
    }
    if let Some(parts) = parts.upgrade() {
        parts.monitor.stop_tracking_execs();
    }
}

fn remove(group: Group) {
    let path = group.path().to_string();
    if let Err(error) = group.remove() {
        tracing::warn!("remove {path}, the cgroup of an orphaned exec: {error}");
    }
}

/// Kills the orphaned exec'd processes of a container, and returns their cgroups, which are not needed any longer.
fn kill_in(parts: &Parts, container: &Container) -> Vec<Group> {
    // The cgroups are listed first: an exec that is requested later has no cgroup yet.
    let orphaned = |name: &str| identifier::is_generated(name) && !parts.monitor.has_requested(name);
    let groups = container.group(&parts.node.trees).and_then(|group| {
        group.exec_groups(orphaned).map_err(failed(format_args!("list the execs of {}", container.id())))
    });
    groups.unwrap_or_default().into_iter().filter(is_ended).collect()
}

/// Reports whether the cgroup is empty, or its exec'd process was killed here.
fn is_ended(group: &Group) -> bool {
    // A cgroup that disappears at this moment is removed by the monitor.
    let Ok(pids) = group.pids() else { return false };
    if !pids.iter().any(|pid| is_exec(pid.as_raw_pid())) {
        return pids.is_empty();
    }
    let killed = group.kill();
    if let Err(error) = &killed {
        tracing::warn!("kill an orphaned exec: {error}");
    }
    killed.is_ok()
}

/// Reports whether the parent of a process is in another PID namespace. False for a process that has exited.
fn is_exec(pid: i32) -> bool {
    is_started_from_outside(pid, parent, namespace)
}

/// Compares the PID namespaces of a process and its parent. A parent that cannot be read has exited in the meantime,
/// and the process has a new parent by now, which decides. If parents keep exiting the answer is unknown, and false is
/// returned: a process that is not known to be an exec'd process stays alive.
fn is_started_from_outside<N: PartialEq>(
    pid: i32,
    parent: impl Fn(i32) -> Option<i32>,
    namespace: impl Fn(i32) -> Option<N>,
) -> bool {
    for _ in 0..PARENTS_MAX {
        let (Some(parent), Some(child_namespace)) = (parent(pid), namespace(pid)) else { return false };
        match (parent, namespace(parent)) {
            // The parent is not visible to this process, or it is the node's init.
            (0 | 1, None) => return true,
            (_, Some(parent_namespace)) => return parent_namespace != child_namespace,
            (_, None) => {}
        }
    }
    false
}

/// Returns the parent of a process; `None` if the process is gone.
fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Returns the PID namespace of a process; `None` if it is gone or not visible to this process.
fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::is_started_from_outside;

    /// `parents` are the results of successive lookups; `namespaces` maps pids to namespaces.
    fn decide(parents: &[i32], namespaces: &[(i32, &str)]) -> bool {
        let parents = RefCell::new(parents.iter().copied());
        let namespace = |pid| namespaces.iter().find(|(key, _)| *key == pid).map(|(_, name)| name.to_string());
        is_started_from_outside(7, |_| parents.borrow_mut().next(), namespace)
    }

    #[test]
    fn a_parent_that_exited_does_not_count_as_a_parent_outside() {
        let inside = [(7, "inside"), (5, "inside"), (2, "node")];
        assert!(!decide(&[5], &inside));
        assert!(decide(&[2], &inside), "the monitor is the parent");
        assert!(!decide(&[6, 5], &inside), "its parent exited, and the container's init became its parent");
        assert!(decide(&[6, 2], &inside), "its parent exited, and the monitor became its parent");
        assert!(decide(&[0], &inside), "its parent is not visible");
        assert!(!decide(&[6; 100], &inside), "parents that keep exiting decide nothing");
        assert!(!decide(&[2], &[(2, "node")]), "it exited itself");
    }
}
