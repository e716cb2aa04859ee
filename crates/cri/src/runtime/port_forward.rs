use cri_proto::v1;
use pod::SandboxState;
use streaming::{PortForward, Request};

use crate::{
    Failure,
    handler::{Outcome, Shared},
    streaming::ports,
};

/// Returns the URL at which a client can connect to a pod's ports.
pub(super) async fn handle(state: Shared, request: v1::PortForwardRequest) -> Outcome<v1::PortForwardResponse> {
    if request.pod_sandbox_id.is_empty() {
        return Err(Failure::invalid("pod_sandbox_id", "must not be empty"));
    }
    let ports = ports(&request.port)?;
    let sandbox = state.engine.sandbox(&request.pod_sandbox_id)?;
    if sandbox.state != SandboxState::Ready {
        return Err(Failure::precondition(format!("forward ports of pod {}: the pod is not ready", sandbox.id)));
    }
    let forward = PortForward { sandbox: sandbox.id.into(), ports };
    Ok(v1::PortForwardResponse { url: state.streaming.url(Request::PortForward(forward))? })
}
