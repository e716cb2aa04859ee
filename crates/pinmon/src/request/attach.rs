use monitor_api::{Attachments, Reply, Role};
use rustix::fs::OFlags;

use super::Answer;
use crate::{
    failure::{no_container, state, system},
    monitor::Monitor,
    stream::StreamKind,
};

/// Copies further output to the attached pipes, until they close or the container exits.
pub(super) fn attach(monitor: &mut Monitor, id: &str, attachments: &mut Attachments) -> Answer {
    let (serial, container) = monitor.containers.require("attach to", id)?;
    if container.has_ended() {
        return Err(state("attach to", id, "it has exited"));
    }
    let output = monitor.outputs.map.get_mut(serial).ok_or_else(|| no_container("attach to", id))?;
    for (role, kind) in [(Role::Stdout, StreamKind::Stdout), (Role::Stderr, StreamKind::Stderr)] {
        let Some(pipe) = attachments.take(role) else { continue };
        let failed = |e| system(format!("attach to container {id}"), e);
        let flags = rustix::fs::fcntl_getfl(&pipe).map_err(failed)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).map_err(failed)?;
        if !output.tap(kind, pipe) {
            return Err(state("attach to", id, "too many clients are attached"));
        }
    }
    monitor.outputs.hand_over(serial, &mut monitor.services);
    Ok(Some(Reply::Done))
}
