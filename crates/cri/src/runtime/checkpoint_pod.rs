use cri_proto::v1;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Refuses `CheckpointPod`, which is alpha in Kubernetes 1.37.
pub(super) async fn handle(_: Shared, _: v1::CheckpointPodRequest) -> Outcome<v1::CheckpointPodResponse> {
    Err(Failure::unimplemented(
        "CheckpointPod",
        "use CheckpointContainer for each container; the containers are then not captured at the same point in time",
    ))
}
