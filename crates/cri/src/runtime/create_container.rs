use cri_proto::v1;

use crate::{
    Failure, config,
    handler::{Outcome, Shared},
};

/// Creates a container, which then waits for `StartContainer`. The pod's configuration in the request is ignored in
/// favor of the one that the pod was created with.
pub(super) async fn handle(state: Shared, request: v1::CreateContainerRequest) -> Outcome<v1::CreateContainerResponse> {
    let message = request.config.ok_or_else(|| Failure::invalid("config", "is missing"))?;
    let config = config::container(message)?;
    let container_id = state.engine.create_container(&request.pod_sandbox_id, config).await?.into();
    Ok(v1::CreateContainerResponse { container_id })
}
