use monitor_api::Reply;

use super::Answer;
use crate::{containers::Stage, failure::state, link::RequestId, monitor::Monitor};

/// Starts a created container. Answered when execve succeeded or failed; at once if its OCI runtime has started it
/// under another monitor.
pub(super) fn start(monitor: &mut Monitor, request_id: RequestId, id: &str, has_started: bool) -> Answer {
    let (serial, container) = monitor.containers.require("start", id)?;
    match container.change() {
        Stage::Created(setup) => {
            monitor.start(serial, setup, request_id);
            Ok(None)
        }
        Stage::Waiting if has_started || container.description.external => {
            container.stage = Stage::Running;
            Ok(Some(Reply::Done))
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
