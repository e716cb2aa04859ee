use cri_proto::pinion as proto;

use crate::answer::{Outcome, Shared};

/// Answers when the container ended; `known` is false where nobody saw how.
pub(super) async fn answer(state: Shared, request: proto::WaitRequest) -> Outcome<proto::WaitResponse> {
    let code = state.engine.wait(&request.container).await?;
    Ok(proto::WaitResponse { known: code.is_some(), exit_code: code.unwrap_or(0) })
}
