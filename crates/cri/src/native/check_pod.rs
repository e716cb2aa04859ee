use cri_proto::pinion as proto;

use crate::handler::{Outcome, Shared};

/// Has the network plugins of a pod check its attachments.
pub(super) async fn handle(state: Shared, request: proto::CheckPodRequest) -> Outcome<proto::CheckPodResponse> {
    let problem = state.engine.check_network(&request.pod_sandbox_id).await?;
    Ok(proto::CheckPodResponse { problem })
}
