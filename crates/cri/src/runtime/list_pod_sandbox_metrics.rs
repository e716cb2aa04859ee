use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::ListPodSandboxMetricsRequest,
) -> Outcome<v1::ListPodSandboxMetricsResponse> {
    Err(Failure::unimplemented("ListPodSandboxMetrics", "use ListContainerStats"))
}
