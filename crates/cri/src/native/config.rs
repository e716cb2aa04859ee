use cri_proto::pinion as proto;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// The configuration that holds.
pub(super) async fn answer(state: Shared, request: proto::ConfigRequest) -> Outcome<proto::ConfigResponse> {
    let toml = state.daemon.config(request.origin).map_err(Failure::precondition)?;
    Ok(proto::ConfigResponse { toml })
}
