use super::Answer;
use crate::{containers::Stage, failure::state, link::RequestId, monitor::Monitor};

/// Starts a created container. Answered when execve succeeded or failed.
pub(super) fn start(monitor: &mut Monitor, request_id: RequestId, id: &str) -> Answer {
    let (serial, container) = monitor.containers.require("start", id)?;
    match container.change() {
        Stage::Created(setup) => {
            monitor.start(serial, setup, request_id);
            Ok(None)
        }
        Stage::Waiting => {
            container.stage = Stage::Waiting;
            monitor.start_with_runtime(serial, request_id).map(|()| None)
        }
        stage => {
            let why = match &stage {
                Stage::SettingUp(..) | Stage::Failing(..) | Stage::Creating | Stage::Undoing(..) => {
                    "it is not set up yet"
                }
                Stage::Draining(_) | Stage::Exited(_) => "it has exited",
                _ => "it was already started",
            };
            container.stage = stage;
            Err(state("start", id, why))
        }
    }
}
