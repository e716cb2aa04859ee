use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Reloads the configuration files.
pub(super) async fn handle(state: Shared, _: proto::ReloadRequest) -> Outcome<proto::ReloadResponse> {
    let changed = state.daemon.reload().await.map_err(Failure::precondition)?;
    Ok(proto::ReloadResponse { changed })
}
