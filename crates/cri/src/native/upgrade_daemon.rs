use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Starts the handover to the installed program. This response is sent before the handover.
pub(super) async fn handle(state: Shared, _: proto::UpgradeDaemonRequest) -> Outcome<proto::UpgradeDaemonResponse> {
    state.daemon.upgrade().await.map_err(Failure::precondition)?;
    Ok(proto::UpgradeDaemonResponse {})
}
