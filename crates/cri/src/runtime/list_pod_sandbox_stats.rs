use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::ListPodSandboxStatsRequest) -> Outcome<v1::ListPodSandboxStatsResponse> {
    Err(Failure::unimplemented("ListPodSandboxStats", "use ListContainerStats"))
}
