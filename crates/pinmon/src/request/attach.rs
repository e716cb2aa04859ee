use monitor_api::{Attachments, Reply, Role};
use rustix::fs::OFlags;

use super::Answer;
use crate::{
    failure::{no_container, state, system},
    monitor::Monitor,
    stream::StreamKind,
    token::Token,
};

impl Monitor {
    /// Copies output from now on to the attached pipes, until they close or the container ends.
    pub(super) fn attach(&mut self, id: &str, attachments: &mut Attachments) -> Answer {
        let serial = self.find(id).ok_or_else(|| no_container("attach to", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("attach to", id)) };
        if child.has_ended() {
            return Err(state("attach to", id, "it has ended"));
        }
        for (role, kind) in [(Role::Stdout, StreamKind::Stdout), (Role::Stderr, StreamKind::Stderr)] {
            let Some(pipe) = attachments.take(role) else { continue };
            let failed = |e| system(format!("attach to container {id}"), e);
            let flags = rustix::fs::fcntl_getfl(&pipe).map_err(failed)?;
            rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).map_err(failed)?;
            let tap =
                child.output.taps.add(kind, pipe).ok_or_else(|| state("attach to", id, "too many are attached"))?;
            let watched = self.epoll.watch_room(tap.pipe(), Token::Tap(serial, tap.number));
            watched.map_err(|e| system(format!("attach to container {id}: watch the pipe"), e))?;
        }
        // What waits for the end of its line is for them too.
        self.timers.after(std::time::Duration::ZERO, crate::timer::Timer::Rest(serial, StreamKind::Stdout.word()));
        self.timers.after(std::time::Duration::ZERO, crate::timer::Timer::Rest(serial, StreamKind::Stderr.word()));
        Ok(Some(Reply::Done))
    }
}
