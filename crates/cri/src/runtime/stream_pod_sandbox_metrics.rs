use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared, Streamed},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::StreamPodSandboxMetricsRequest,
) -> Outcome<Streamed<v1::StreamPodSandboxMetricsResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxMetrics", "use ListContainerStats"))
}
