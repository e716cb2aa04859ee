use cri_proto::v1;

use crate::answer::{Outcome, Shared};

/// After the log was renamed: goes on in a new file of the old name.
pub(super) async fn answer(
    state: Shared,
    request: v1::ReopenContainerLogRequest,
) -> Outcome<v1::ReopenContainerLogResponse> {
    state.engine.reopen_log(&request.container_id).await?;
    Ok(v1::ReopenContainerLogResponse {})
}
