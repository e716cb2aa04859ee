use cri_proto::v1;

use crate::{
    Failure, config,
    handler::{Outcome, Shared},
};

/// Creates a pod and returns when it is ready.
pub(super) async fn handle(state: Shared, request: v1::RunPodSandboxRequest) -> Outcome<v1::RunPodSandboxResponse> {
    let message = request.config.ok_or_else(|| Failure::invalid("config", "is missing"))?;
    let config = config::sandbox(message, request.runtime_handler)?;
    let pod_sandbox_id = state.engine.run_sandbox(config).await?.into();
    Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
}
