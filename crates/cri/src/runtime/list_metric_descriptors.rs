use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::descriptors,
};

/// What every metric of `ListPodSandboxMetrics` is described by; always the same.
pub(super) async fn answer(
    _: Shared,
    _: v1::ListMetricDescriptorsRequest,
) -> Outcome<v1::ListMetricDescriptorsResponse> {
    Ok(v1::ListMetricDescriptorsResponse { descriptors: descriptors() })
}
