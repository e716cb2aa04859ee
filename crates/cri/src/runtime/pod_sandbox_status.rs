use std::{cmp::Reverse, collections::HashMap};

use cri_proto::v1;
use pod::{ContainerStatus, SandboxId};

use crate::{
    handler::{Outcome, Shared},
    status::{container_status, sandbox_info, sandbox_status},
};

/// Timestamp 0, which makes kubelet call `ContainerStatus` for each container. With a timestamp and the feature gate
/// `EventedPLEG` kubelet uses the container statuses of this response instead; but then kubelet 1.37 does not notice
/// that a pod's init containers are done, and starts them again.
const NO_TIMESTAMP: i64 = 0;

/// Returns the status of a pod and its containers; `verbose` adds all details.
pub(super) async fn handle(
    state: Shared,
    request: v1::PodSandboxStatusRequest,
) -> Outcome<v1::PodSandboxStatusResponse> {
    let sandbox = state.engine.sandbox(&request.pod_sandbox_id)?;
    let info = match request.verbose {
        true => sandbox_info(&sandbox, state.engine.inspect_sandbox(&sandbox.id)?),
        false => HashMap::new(),
    };
    let containers = newest_first(state.engine.containers(), &sandbox.id);
    let image = |id: &str| state.engine.images().find(id).ok().flatten();
    let containers_statuses = containers.iter().map(|c| container_status(c, image(&c.image_id).as_ref())).collect();
    let status = Some(sandbox_status(&sandbox));
    Ok(v1::PodSandboxStatusResponse { status, info, containers_statuses, timestamp: NO_TIMESTAMP })
}

/// Returns the containers of a pod, the newest first: of several containers with the same name, kubelet takes the first
/// as the current one.
fn newest_first(mut containers: Vec<ContainerStatus>, sandbox: &SandboxId) -> Vec<ContainerStatus> {
    containers.retain(|container| container.sandbox == *sandbox && !container.creating);
    containers.sort_by_key(|container| Reverse(container.created_at));
    containers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::samples;

    #[test]
    fn the_newest_container_of_a_name_comes_first() {
        let container = |id: &str, sandbox: &SandboxId, created_at| ContainerStatus {
            id: samples::container_id(id),
            sandbox: sandbox.clone(),
            created_at,
            ..samples::container(Default::default())
        };
        let pod = samples::sandbox_id("b1");
        let all = vec![
            container("c1", &pod, 1),
            container("c2", &samples::sandbox_id("b2"), 2),
            container("c4", &pod, 3),
            container("c3", &pod, 2),
        ];
        let ids: Vec<_> = newest_first(all, &pod).into_iter().map(|container| container.id).collect();
        assert_eq!(ids, ["c4", "c3", "c1"].map(samples::container_id));
    }
}
