//! Commands that outlived both the daemon and the monitor: whoever asked for them is gone, and nobody would end them.
//!
//! What a command left behind when it ended is the container's, and lives on. It is told from a command by its parent,
//! which is in its own PID namespace; a command's is outside. In a container on the node's PID namespace they look
//! alike, and live.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use cgroup::Group;

use crate::{
    container::{Container, ContainerPhase},
    engine::{Inner, blocking},
    error::failed,
    identifier,
};

/// As many containers are looked at between two pauses: requests are served meanwhile.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(20);
/// How often the parent of a process is looked at that has ended each time.
const PARENTS_MAX: usize = 16;
/// From the engine's opening to the first look: first of all requests are to be served.
const LATER: Duration = Duration::from_millis(500);

/// Kills those that are left, with all they started, of containers that ran when this daemon started. What this daemon
/// began is known to [`crate::monitor::Monitor::has_begun`].
pub(super) async fn end_left(engine: Weak<Inner>) {
    let running = |engine: Arc<Inner>| {
        let mut running = engine.containers();
        running.retain(|container| container.record().phase == ContainerPhase::Running);
        running
    };
    tokio::time::sleep(LATER).await;
    for some in engine.upgrade().map(running).unwrap_or_default().chunks(AT_ONCE) {
        let Some(engine) = engine.upgrade() else { return };
        let some = some.to_vec();
        let over = blocking(move || Ok(some.iter().flat_map(|one| end_of(&engine, one)).collect::<Vec<Group>>()));
        let over = over.await.unwrap_or_default();
        if !over.is_empty() {
            // Not waited for: what hangs in the kernel must not keep the others from their end.
            offload::blocking(move || over.into_iter().for_each(remove));
        }
        tokio::time::sleep(PAUSE).await;
    }
    if let Some(engine) = engine.upgrade() {
        engine.monitor.all_are_begun();
    }
}

fn remove(group: Group) {
    let path = group.path().to_string();
    if let Err(error) = group.remove() {
        tracing::warn!("remove {path}, which a command left: {error}");
    }
}

/// Groups that nobody needs any more.
fn end_of(engine: &Inner, container: &Container) -> Vec<Group> {
    // The groups are listed before this is asked: a command that is begun later has none yet.
    let left = |name: &str| identifier::is_fresh(name) && !engine.monitor.has_begun(name);
    let groups = container
        .group(engine)
        .and_then(|group| group.exec_groups(left).map_err(failed(format_args!("list commands of {}", container.id()))));
    groups.unwrap_or_default().into_iter().filter(is_over).collect()
}

/// Whether it is empty, or its command was killed here.
fn is_over(command: &Group) -> bool {
    // One that goes just now is the monitor's to remove.
    let Ok(pids) = command.pids() else { return false };
    if !pids.iter().any(|pid| is_command(*pid)) {
        return pids.is_empty();
    }
    let killed = command.kill();
    if let Err(error) = &killed {
        tracing::warn!("kill what a command left: {error}");
    }
    killed.is_ok()
}

/// Whether its parent is in another PID namespace. What ended meanwhile is none.
fn is_command(pid: i32) -> bool {
    is_started_from_outside(pid, parent, namespace)
}

/// A parent that cannot be read has ended while it was looked at, and its children have another one by now: that one
/// decides. Where parents end all the time nothing is known, and what is not known to be a command lives on.
fn is_started_from_outside<N: PartialEq>(
    pid: i32,
    parent: impl Fn(i32) -> Option<i32>,
    namespace: impl Fn(i32) -> Option<N>,
) -> bool {
    for _ in 0..PARENTS_MAX {
        let (Some(parent), Some(own)) = (parent(pid), namespace(pid)) else { return false };
        match (parent, namespace(parent)) {
            // Outside of what this process sees, or the node's init.
            (0 | 1, None) => return true,
            (_, Some(of_parent)) => return of_parent != own,
            (_, None) => {}
        }
    }
    false
}

/// `None` for one that is gone.
fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// `None` for one that is gone, and for a parent whom this process does not see.
fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::is_started_from_outside;

    /// Parents as they are read one after the other; the namespace of each pid.
    fn decide(parents: &[i32], namespaces: &[(i32, &str)]) -> bool {
        let parents = RefCell::new(parents.iter().copied());
        let namespace = |pid| namespaces.iter().find(|(of, _)| *of == pid).map(|(_, name)| name.to_string());
        is_started_from_outside(7, |_| parents.borrow_mut().next(), namespace)
    }

    #[test]
    fn a_parent_that_ended_is_no_parent_outside() {
        let inside = [(7, "inside"), (5, "inside"), (2, "node")];
        assert!(!decide(&[5], &inside));
        assert!(decide(&[2], &inside), "the monitor's");
        assert!(!decide(&[6, 5], &inside), "its parent ended, and it fell to the container's init");
        assert!(decide(&[6, 2], &inside), "its parent ended, and it fell to the monitor");
        assert!(decide(&[0], &inside), "its parent is not seen from here");
        assert!(!decide(&[6; 100], &inside), "parents that end all the time decide nothing");
        assert!(!decide(&[2], &[(2, "node")]), "it ended itself");
    }
}
