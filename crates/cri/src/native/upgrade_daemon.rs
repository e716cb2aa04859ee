use cri_proto::pinion as proto;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// Begins to give way to the installed program; this answer is one of those that are sent first.
pub(super) async fn answer(state: Shared, _: proto::UpgradeDaemonRequest) -> Outcome<proto::UpgradeDaemonResponse> {
    state.daemon.upgrade().await.map_err(Failure::precondition)?;
    Ok(proto::UpgradeDaemonResponse {})
}
