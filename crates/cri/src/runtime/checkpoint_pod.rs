use std::{collections::BTreeSet, time::Duration};

use cri_proto::v1;
use pod::PodCheckpoint;

use crate::{
    Failure,
    config::absolute_path,
    handler::{Outcome, Shared},
};

/// Most containers of a request.
const CONTAINERS_MAX: usize = 1024;

/// Writes a pod in a virtual machine to a directory; the pod continues. `timeout` ends before the deadline of the request: the pod is
/// not returned frozen.
pub(super) async fn handle(
    state: Shared,
    request: v1::CheckpointPodRequest,
    timeout: Duration,
) -> Outcome<v1::CheckpointPodResponse> {
    let output = absolute_path("output_path", &request.output_path)?;
    if let Some(key) = request.options.keys().min() {
        return Err(Failure::invalid("options", format_args!("option {key:?} does not exist")));
    }
    let ids: BTreeSet<&String> = request.container_ids.iter().collect();
    if !(1..=CONTAINERS_MAX).contains(&ids.len()) || ids.len() != request.container_ids.len() {
        let reason = format!("1 to {CONTAINERS_MAX} ids are possible, each once");
        return Err(Failure::invalid("container_ids", reason));
    }
    let checkpoint = PodCheckpoint { output, containers: request.container_ids, timeout };
    state.engine.checkpoint_sandbox(&request.pod_sandbox_id, checkpoint).await?;
    Ok(v1::CheckpointPodResponse {})
}
