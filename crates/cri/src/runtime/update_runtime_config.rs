use cri_proto::v1;

use crate::handler::{Outcome, Shared};

/// Accepts and ignores the node's pod CIDR: CNI plugins that need it read it from other sources.
pub(super) async fn handle(_: Shared, _: v1::UpdateRuntimeConfigRequest) -> Outcome<v1::UpdateRuntimeConfigResponse> {
    Ok(v1::UpdateRuntimeConfigResponse {})
}
