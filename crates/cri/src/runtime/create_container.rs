use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
    config,
};

/// Makes a container that waits for `StartContainer`. The pod's configuration is the one it was made with.
pub(super) async fn answer(state: Shared, request: v1::CreateContainerRequest) -> Outcome<v1::CreateContainerResponse> {
    let message = request.config.ok_or_else(|| Failure::invalid("config", "is missing"))?;
    let config = config::container(message)?;
    let container_id = state.engine.create_container(&request.pod_sandbox_id, config).await?;
    Ok(v1::CreateContainerResponse { container_id })
}
