//! Commands that outlived both the daemon and the monitor: whoever asked for them is gone, and nobody would end them.
//!
//! What a command left behind when it ended is the container's, and lives on. It is told from a command by its parent, which
//! is in its own PID namespace; a command's is outside. In a container on the node's PID namespace they look alike, and live.

use std::{fs, path::PathBuf, sync::Arc};

use cgroup::Group;

use crate::{
    container::{Container, ContainerPhase},
    engine::{Inner, blocking},
    identifier,
};

/// Kills those that are left, with all they started. To be called before any is begun by this daemon.
pub(super) async fn end_left(engine: &Arc<Inner>) {
    let engine = Arc::clone(engine);
    let done = blocking(move || {
        let running = |container: &Arc<Container>| container.record().phase == ContainerPhase::Running;
        let containers = engine.containers();
        containers.iter().filter(|container| running(container)).for_each(|container| end_of(&engine, container));
        Ok(())
    });
    // It fails for no one.
    let _ = done.await;
}

fn end_of(engine: &Inner, container: &Container) {
    let Ok(group) = container.group(engine) else { return };
    for command in group.exec_groups(identifier::is_fresh).unwrap_or_default() {
        if let Err(error) = end(command) {
            tracing::warn!("end what a command left in container {}: {error}", container.id());
        }
    }
}

fn end(command: Group) -> Result<(), cgroup::Error> {
    let pids = command.pids()?;
    let orphaned = pids.iter().any(|pid| is_command(*pid));
    if orphaned {
        command.kill()?;
    }
    if orphaned || pids.is_empty() { command.remove() } else { Ok(()) }
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
