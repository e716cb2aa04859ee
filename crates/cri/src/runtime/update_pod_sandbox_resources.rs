use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::UpdatePodSandboxResourcesRequest,
) -> Outcome<v1::UpdatePodSandboxResourcesResponse> {
    Err(Failure::unimplemented("UpdatePodSandboxResources", "use UpdateContainerResources"))
}
