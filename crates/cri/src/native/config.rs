use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Returns the active configuration.
pub(super) async fn handle(state: Shared, request: proto::ConfigRequest) -> Outcome<proto::ConfigResponse> {
    let toml = state.daemon.config(request.origin).map_err(Failure::precondition)?;
    Ok(proto::ConfigResponse { toml })
}
