use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::descriptors,
};

/// Returns the descriptors of all metrics of `ListPodSandboxMetrics`, which never change.
pub(super) async fn handle(
    _: Shared,
    _: v1::ListMetricDescriptorsRequest,
) -> Outcome<v1::ListMetricDescriptorsResponse> {
    Ok(v1::ListMetricDescriptorsResponse { descriptors: descriptors() })
}
