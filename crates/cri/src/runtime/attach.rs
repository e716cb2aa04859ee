use cri_proto::v1;
use pod::ContainerState;
use streaming::{Attach, Request};

use crate::{
    Failure,
    handler::{Outcome, Shared},
    streaming::container_streams,
};

/// Returns the URL at which a client can attach to a container's streams.
pub(super) async fn handle(state: Shared, request: v1::AttachRequest) -> Outcome<v1::AttachResponse> {
    if request.container_id.is_empty() {
        return Err(Failure::invalid("container_id", "must not be empty"));
    }
    let streams = container_streams(request.stdin, request.stdout, request.stderr, request.tty)?;
    let container = state.engine.container(&request.container_id)?;
    if container.state != ContainerState::Running {
        return Err(Failure::precondition(format!(
            "attach to container {}: the container is not running",
            container.id
        )));
    }
    let attach = Attach { container: container.id.into(), streams };
    Ok(v1::AttachResponse { url: state.streaming.url(Request::Attach(attach))? })
}
