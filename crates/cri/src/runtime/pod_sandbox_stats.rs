use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::PodSandboxStatsRequest) -> Outcome<v1::PodSandboxStatsResponse> {
    Err(Failure::unimplemented("PodSandboxStats", "use ListContainerStats"))
}
