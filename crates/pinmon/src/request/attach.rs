use monitor_api::{Attachments, Reply, Role};
use rustix::fs::OFlags;

use super::Answer;
use crate::{
    failure::{no_container, state, system},
    monitor::Monitor,
    stream::StreamKind,
};

impl Monitor {
    /// Copies further output to the attached pipes, until they close or the container exits.
    pub(super) fn attach(&mut self, id: &str, attachments: &mut Attachments) -> Answer {
        let serial = self.find(id).ok_or_else(|| no_container("attach to", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("attach to", id)) };
        if child.has_ended() {
            return Err(state("attach to", id, "it has exited"));
        }
        for (role, kind) in [(Role::Stdout, StreamKind::Stdout), (Role::Stderr, StreamKind::Stderr)] {
            let Some(pipe) = attachments.take(role) else { continue };
            let failed = |e| system(format!("attach to container {id}"), e);
            let flags = rustix::fs::fcntl_getfl(&pipe).map_err(failed)?;
            rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).map_err(failed)?;
            if !child.output.tap(kind, pipe) {
                return Err(state("attach to", id, "too many clients are attached"));
            }
        }
        self.hand_over(serial);
        Ok(Some(Reply::Done))
    }
}
