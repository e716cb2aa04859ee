use std::collections::HashMap;

use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::engine_info,
};

/// Returns the runtime's conditions and features; `verbose` adds versions, paths and configuration.
pub(super) async fn handle(state: Shared, request: v1::StatusRequest) -> Outcome<v1::StatusResponse> {
    let status = state.engine.status().await;
    let users = status.user_namespaces.ready;
    let conditions = vec![condition("RuntimeReady", status.runtime), condition("NetworkReady", status.network)];
    let info = match request.verbose {
        true => engine_info(&status.info, &state.daemon.facts()),
        false => HashMap::new(),
    };
    Ok(v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions }),
        info,
        runtime_handlers: status.handlers.into_iter().map(|info| handler(info, users)).collect(),
        features: Some(v1::RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: users,
            mount_options: true,
        }),
    })
}

fn condition(kind: &str, condition: pod::Condition) -> v1::RuntimeCondition {
    let pod::Condition { ready, reason, message } = condition;
    v1::RuntimeCondition { r#type: kind.to_owned(), status: ready, reason, message }
}

/// Returns the features of a handler. Kubelet relies on them, so only supported ones may be set.
fn handler(info: pod::HandlerInfo, user_namespaces: bool) -> v1::RuntimeHandler {
    v1::RuntimeHandler {
        name: info.name,
        features: Some(v1::RuntimeHandlerFeatures {
            recursive_read_only_mounts: info.recursive_readonly_mounts,
            user_namespaces: user_namespaces && info.user_namespaces,
        }),
    }
}
