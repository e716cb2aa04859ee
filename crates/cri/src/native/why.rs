use cri_proto::pinion as proto;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// A JSON array, an object for each pod and container that is meant. It reads the kernel's log, so it is off the
/// threads that serve.
pub(super) async fn answer(state: Shared, request: proto::WhyRequest) -> Outcome<proto::WhyResponse> {
    let found = tokio::task::spawn_blocking(move || state.engine.why(&request.name));
    let found = found.await.map_err(|panic| Failure::internal(format!("a bug: {panic}")))??;
    let json = serde_json::to_string(&found).map_err(|error| Failure::internal(format!("write JSON: {error}")))?;
    Ok(proto::WhyResponse { json })
}
