use cri_proto::v1;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Refuses `RestorePod`, which is alpha in Kubernetes 1.37.
pub(super) async fn handle(_: Shared, _: v1::RestorePodRequest) -> Outcome<v1::RestorePodResponse> {
    Err(Failure::unimplemented(
        "RestorePod",
        "checkpoints can only be inspected; containers cannot be restored from them",
    ))
}
