use std::time::Duration;

use cri_proto::v1;
use pod::PodRestore;

use crate::{
    Failure,
    config::{self, absolute_path},
    handler::{Outcome, Shared},
};

/// Most containers of a request.
const CONTAINERS_MAX: usize = 1024;

/// Creates a pod from a checkpoint, whose containers continue when they are started. `timeout` ends before the deadline of the
/// request: nothing is left of a restore that failed.
pub(super) async fn handle(
    state: Shared,
    request: v1::RestorePodRequest,
    timeout: Duration,
) -> Outcome<v1::RestorePodResponse> {
    let checkpoint = absolute_path("checkpoint_path", &request.checkpoint_path)?;
    if let Some(key) = request.options.keys().min() {
        return Err(Failure::invalid("options", format_args!("option {key:?} does not exist")));
    }
    let message = request.config.ok_or_else(|| Failure::invalid("config", "is missing"))?;
    let config = config::sandbox(message, request.runtime_handler)?;
    if !(1..=CONTAINERS_MAX).contains(&request.container_configs.len()) {
        return Err(Failure::invalid("container_configs", format_args!("1 to {CONTAINERS_MAX} are possible")));
    }
    let containers = request.container_configs.into_iter().map(config::container).collect::<Outcome<_>>()?;
    let restored = state.engine.restore_sandbox(PodRestore { checkpoint, config, containers, timeout }).await?;
    let containers = restored.containers.into_iter();
    let containers = containers.map(|(name, id)| v1::RestoredContainer { name, container_id: id.into() });
    Ok(v1::RestorePodResponse { pod_sandbox_id: restored.id.into(), restored_containers: containers.collect() })
}
