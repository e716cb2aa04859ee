use cri_proto::pinion as proto;
use serde_json::{Value, json};

use crate::{
    RUNTIME_VERSION,
    handler::{Outcome, Shared},
};

/// Returns a JSON object with versions, conditions and the information of the engine.
pub(super) async fn handle(state: Shared, _: proto::InfoRequest) -> Outcome<proto::InfoResponse> {
    let status = state.engine.status().await;
    let condition = |c: &pod::Condition| json!({"ready": c.ready, "reason": c.reason, "message": c.message});
    let mut info = serde_json::Map::from_iter(status.info.clone());
    info.insert("version".to_owned(), json!(RUNTIME_VERSION));
    info.insert("daemon".to_owned(), state.daemon.facts());
    info.insert("pid".to_owned(), json!(std::process::id()));
    info.insert("runtime".to_owned(), condition(&status.runtime));
    info.insert("networkReady".to_owned(), condition(&status.network));
    info.insert("handlers".to_owned(), json!(status.handlers));
    info.insert("imageRoot".to_owned(), json!(state.engine.images().root()));
    info.insert("pods".to_owned(), json!(state.engine.sandboxes().len()));
    info.insert("containers".to_owned(), json!(state.engine.containers().len()));
    Ok(proto::InfoResponse { json: Value::Object(info).to_string() })
}
