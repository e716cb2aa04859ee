use cri_proto::v1;

use crate::answer::{Outcome, Shared};

/// Accepted: the node's pod CIDR concerns CNI plugins that read it from elsewhere.
pub(super) async fn answer(_: Shared, _: v1::UpdateRuntimeConfigRequest) -> Outcome<v1::UpdateRuntimeConfigResponse> {
    Ok(v1::UpdateRuntimeConfigResponse {})
}
