use cri_proto::pinion as proto;

use crate::handler::{Outcome, Shared};

/// Waits for the exit of a container. `known` is false if the exit code is unknown.
pub(super) async fn handle(state: Shared, request: proto::WaitRequest) -> Outcome<proto::WaitResponse> {
    let code = state.engine.wait(&request.container).await?;
    Ok(proto::WaitResponse { known: code.is_some(), exit_code: code.unwrap_or(0) })
}
