use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared, Streamed},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::StreamPodSandboxStatsRequest,
) -> Outcome<Streamed<v1::StreamPodSandboxStatsResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxStats", "use ListContainerStats"))
}
