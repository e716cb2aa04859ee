//! Commands that outlived both the daemon and the monitor: whoever asked for them is gone, and nobody would end them.
//!
//! What a command left behind when it ended is the container's, and lives on. It is told from a command by its parent, which
//! is in its own PID namespace; a command's is outside. In a container on the node's PID namespace they look alike, and live.

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
            tokio::task::spawn_blocking(move || over.into_iter().for_each(remove));
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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    let (Some(parent), Some(own)) = (parent, namespace(&pid.to_string())) else { return false };
    namespace(parent) != Some(own)
}

/// `None` for one that is gone, and for a parent whom this process does not see.
fn namespace(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}
