use cri_proto::pinion as proto;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// Takes up the configuration's files as they are now.
pub(super) async fn answer(state: Shared, _: proto::ReloadRequest) -> Outcome<proto::ReloadResponse> {
    let changed = state.daemon.reload().await.map_err(Failure::precondition)?;
    Ok(proto::ReloadResponse { changed })
}
