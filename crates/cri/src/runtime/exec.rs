use cri_proto::v1;
use pod::ContainerState;
use streaming::{Exec, Request};

use crate::{
    Failure,
    handler::{Outcome, Shared},
    streaming::container_streams,
};

/// Returns the URL at which a client can run a command; the command is executed when the client connects.
pub(super) async fn handle(state: Shared, request: v1::ExecRequest) -> Outcome<v1::ExecResponse> {
    if request.container_id.is_empty() {
        return Err(Failure::invalid("container_id", "must not be empty"));
    }
    if request.cmd.is_empty() {
        return Err(Failure::invalid("cmd", "must not be empty"));
    }
    let streams = container_streams(request.stdin, request.stdout, request.stderr, request.tty)?;
    let container = state.engine.container(&request.container_id)?;
    if container.state != ContainerState::Running {
        return Err(Failure::precondition(format!("exec in container {}: the container is not running", container.id)));
    }
    let exec = Exec { container: container.id.into(), command: request.cmd, streams };
    Ok(v1::ExecResponse { url: state.streaming.url(Request::Exec(exec))? })
}
