use std::time::Duration;

use cri_proto::v1;

use crate::handler::{Outcome, Shared, ignore_not_found};

/// Stops a container, and kills it after the grace period; a missing container is not an error.
pub(super) async fn handle(state: Shared, request: v1::StopContainerRequest) -> Outcome<v1::StopContainerResponse> {
    // 0 means "kill at once"; negative values are treated the same.
    let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
    ignore_not_found(state.engine.stop_container(&request.container_id, grace).await)?;
    Ok(v1::StopContainerResponse {})
}
