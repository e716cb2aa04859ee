use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Sends a signal to a container's init process, or to all of its processes.
pub(super) async fn handle(state: Shared, request: proto::KillRequest) -> Outcome<proto::KillResponse> {
    if !(1..=64).contains(&request.signal) {
        return Err(Failure::invalid("signal", format_args!("{} is not a valid signal (1 to 64)", request.signal)));
    }
    state.engine.kill_container(&request.container, request.signal, request.all).await?;
    Ok(proto::KillResponse {})
}
