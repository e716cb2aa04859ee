use cri_proto::v1;

use crate::{
    RUNTIME_NAME, RUNTIME_VERSION,
    handler::{Outcome, Shared},
};

/// Returns the versions of the runtime and its API.
pub(super) async fn handle(_: Shared, _: v1::VersionRequest) -> Outcome<v1::VersionResponse> {
    Ok(v1::VersionResponse {
        // The version of kubelet's runtime API; kubelet requires exactly this one.
        version: "0.1.0".to_owned(),
        runtime_name: RUNTIME_NAME.to_owned(),
        runtime_version: RUNTIME_VERSION.to_owned(),
        runtime_api_version: "v1".to_owned(),
    })
}
