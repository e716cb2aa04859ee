use super::Answer;
use crate::{
    child::Stage,
    connection::Asked,
    failure::{no_container, state},
    monitor::Monitor,
};

impl Monitor {
    /// Lets a created container run; answered when execve succeeded or failed.
    pub(super) fn start(&mut self, asked: Asked, id: &str) -> Answer {
        let serial = self.find(id).ok_or_else(|| no_container("start", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("start", id)) };
        let why = match child.change() {
            Stage::Created(nascent) => {
                self.let_go(serial, nascent, asked);
                return Ok(None);
            }
            other => {
                let why = match &other {
                    Stage::Setting(..) | Stage::Failing(..) => "it is not set up yet",
                    Stage::Draining(_) | Stage::Exited(_) => "it has ended",
                    _ => "it was started already",
                };
                child.stage = other;
                why
            }
        };
        Err(state("start", id, why))
    }
}
