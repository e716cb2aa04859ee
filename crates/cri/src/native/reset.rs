use cri_proto::pinion as proto;

use crate::answer::{Outcome, Shared};

/// Takes everything away again, and asks the daemon to end: it has nothing to serve any more.
pub(super) async fn answer(state: Shared, _: proto::ResetRequest) -> Outcome<proto::ResetResponse> {
    state.engine.clone().reset().await?;
    state.end.notify_one();
    Ok(proto::ResetResponse {})
}
