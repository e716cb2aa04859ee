use std::time::Duration;

use cri_proto::v1;

use crate::answer::{Outcome, Shared, gone_is_fine};

/// Ends a container, by force after the grace; one that is not there is stopped.
pub(super) async fn answer(state: Shared, request: v1::StopContainerRequest) -> Outcome<v1::StopContainerResponse> {
    // 0 is "at once", and so is nonsense below it.
    let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
    gone_is_fine(state.engine.stop_container(&request.container_id, grace).await)?;
    Ok(v1::StopContainerResponse {})
}
