//! Commands that outlived both the daemon and the monitor: whoever asked for them is gone, and nobody would end them.
//!
//! What a command left behind when it ended is the container's, and lives on. It is told from a command by its parent, which
//! is in its own PID namespace; a command's is outside. In a container on the node's PID namespace they look alike, and live.

use std::{fs, path::PathBuf, sync::Arc};

use cgroup::Group;

use crate::{
    container::{Container, ContainerPhase},
    engine::{Inner, blocking},
    error::failed,
    identifier,
};

/// Kills those that are left, with all they started. To be called before any is begun by this daemon.
pub(super) async fn end_left(engine: &Arc<Inner>) {
    let engine = Arc::clone(engine);
    let over = blocking(move || {
        let running = |container: &Arc<Container>| container.record().phase == ContainerPhase::Running;
        let containers = engine.containers();
        Ok(containers.iter().filter(|container| running(container)).flat_map(|one| end_of(&engine, one)).collect())
    });
    let over: Vec<Group> = over.await.unwrap_or_default();
    // Not waited for: what hangs in the kernel must not keep the daemon from its start.
    tokio::task::spawn_blocking(move || {
        for group in over {
            let path = group.path().to_string();
            if let Err(error) = group.remove() {
                tracing::warn!("remove {path}, which a command left: {error}");
            }
        }
    });
}

/// Groups that nobody needs any more.
fn end_of(engine: &Inner, container: &Container) -> Vec<Group> {
    let groups = container.group(engine).and_then(|group| {
        group.exec_groups(identifier::is_fresh).map_err(failed(format_args!("list commands of {}", container.id())))
    });
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
