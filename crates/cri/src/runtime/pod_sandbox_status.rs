use std::{cmp::Reverse, collections::HashMap};

use cri_proto::v1;
use pod::ContainerStatus;

use crate::{
    answer::{Outcome, Shared},
    status::{container_status, sandbox_info, sandbox_status},
};

/// No time: kubelet then asks `ContainerStatus` of each container. With one, and its gate `EventedPLEG`, it takes the
/// statuses beside it instead; but (1.37) it does not see by them that a pod's init containers are done, and starts
/// them again.
const NOT_INSTEAD: i64 = 0;

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
    let containers = newest_first(state.engine.containers(), &sandbox.id);
    let image = |id: &str| state.engine.images().find(id).ok().flatten();
    let containers_statuses = containers.iter().map(|c| container_status(c, image(&c.image_id).as_ref())).collect();
    let status = Some(sandbox_status(&sandbox));
    Ok(v1::PodSandboxStatusResponse { status, info, containers_statuses, timestamp: NOT_INSTEAD })
}

/// Those of one pod. Kubelet takes the first of a name for its present state.
fn newest_first(mut containers: Vec<ContainerStatus>, sandbox: &str) -> Vec<ContainerStatus> {
    containers.retain(|container| container.sandbox == sandbox && !container.making);
    containers.sort_by_key(|container| Reverse(container.created_at));
    containers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::samples;

    #[test]
    fn the_newest_of_a_name_comes_first() {
        let made = |id: &str, sandbox: &str, created_at| ContainerStatus {
            id: id.to_owned(),
            sandbox: sandbox.to_owned(),
            created_at,
            ..samples::container(Default::default())
        };
        let all = vec![made("old", "p", 1), made("other", "q", 2), made("new", "p", 3), made("middle", "p", 2)];
        let ids: Vec<String> = newest_first(all, "p").into_iter().map(|container| container.id).collect();
        assert_eq!(ids, ["new", "middle", "old"]);
    }
}
