use std::collections::HashMap;

use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::{container_status, now, sandbox_info, sandbox_status},
};

/// One pod, with its containers; `verbose` adds all that is known.
pub(super) async fn answer(
    state: Shared,
    request: v1::PodSandboxStatusRequest,
) -> Outcome<v1::PodSandboxStatusResponse> {
    let sandbox = state.engine.sandbox(&request.pod_sandbox_id)?;
    let info = match request.verbose {
        true => sandbox_info(&sandbox, state.engine.inspect_sandbox(&sandbox.id)?),
        false => HashMap::new(),
    };
    let timestamp = now();
    let containers = state.engine.containers();
    let containers_statuses =
        containers.iter().filter(|c| c.sandbox == sandbox.id && !c.making).map(|c| container_status(c, None)).collect();
    Ok(v1::PodSandboxStatusResponse { status: Some(sandbox_status(&sandbox)), info, containers_statuses, timestamp })
}
