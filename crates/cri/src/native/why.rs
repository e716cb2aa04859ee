use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Returns a JSON array with an object for each pod and container that matches the name. Runs on a blocking thread,
/// because it reads the kernel log.
pub(super) async fn handle(state: Shared, request: proto::WhyRequest) -> Outcome<proto::WhyResponse> {
    let reports = offload::blocking(move || state.engine.why(&request.name));
    let reports =
        reports.await.map_err(|panic| Failure::internal(format!("the daemon panicked; this is a bug: {panic}")))??;
    let json = serde_json::to_string(&reports).map_err(|error| Failure::internal(format!("encode JSON: {error}")))?;
    Ok(proto::WhyResponse { json })
}
