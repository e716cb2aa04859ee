use super::Answer;
use crate::{
    child::Stage,
    connection::RequestId,
    failure::{no_container, state},
    monitor::Monitor,
};

impl Monitor {
    /// Starts a created container. Answered when execve succeeded or failed.
    pub(super) fn start(&mut self, request_id: RequestId, id: &str) -> Answer {
        let serial = self.find(id).ok_or_else(|| no_container("start", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("start", id)) };
        let why = match child.change() {
            Stage::Created(setup) => {
                self.send_start(serial, setup, request_id);
                return Ok(None);
            }
            stage => {
                let why = match &stage {
                    Stage::SettingUp(..) | Stage::Failing(..) => "it is not set up yet",
                    Stage::Draining(_) | Stage::Exited(_) => "it has exited",
                    _ => "it was already started",
                };
                child.stage = stage;
                why
            }
        };
        Err(state("start", id, why))
    }
}
