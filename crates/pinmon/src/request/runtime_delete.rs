use monitor_api::{Attachments, OciRuntime};

use super::{Answer, create::check_id};
use crate::{
    failure::state,
    link::RequestId,
    monitor::Monitor,
    oci_runtime::{CommandProgram, NewCommand, Purpose, Verb},
};

/// Has an OCI runtime delete a container that the monitor does not know. Answered when the runtime has exited.
pub(super) fn runtime_delete(
    monitor: &mut Monitor,
    request_id: RequestId,
    container: &str,
    runtime: &OciRuntime,
) -> Answer {
    check_id(container)?;
    if monitor.containers.find(container).is_some() {
        return Err(state("delete", container, "the monitor knows it; request Delete instead"));
    }
    let command = NewCommand {
        verb: Verb::Delete { force: true },
        container,
        program: CommandProgram::Oci(runtime),
        purpose: Purpose::Request(request_id),
        attachments: Attachments::new(),
        limits: monitor.runtime_limits(),
    };
    monitor.run_requested_command(command).map(|()| None)
}
