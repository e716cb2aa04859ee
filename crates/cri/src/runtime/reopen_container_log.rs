use cri_proto::v1;

use crate::handler::{Outcome, Shared};

/// Creates a new log file at the container's log path, after kubelet renamed the old one.
pub(super) async fn handle(
    state: Shared,
    request: v1::ReopenContainerLogRequest,
) -> Outcome<v1::ReopenContainerLogResponse> {
    state.engine.reopen_log(&request.container_id).await?;
    Ok(v1::ReopenContainerLogResponse {})
}
