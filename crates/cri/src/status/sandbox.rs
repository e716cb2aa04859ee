use cri_proto::v1;
use pod::{PidMode, SandboxConfig, SandboxState, SandboxStatus, SandboxSummary, SharedMode, UserMappings, oci};

use super::time;

/// Converts to a row of `ListPodSandbox`.
pub(crate) fn listed(sandbox: &SandboxSummary<'_>) -> v1::PodSandbox {
    let config = sandbox.config;
    v1::PodSandbox {
        id: sandbox.id.to_string(),
        metadata: Some(metadata(config)),
        state: state(sandbox.state).into(),
        created_at: time(sandbox.created_at),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        runtime_handler: config.runtime_handler.clone(),
    }
}

/// Converts to a `PodSandboxStatus`.
pub(crate) fn status(sandbox: &SandboxStatus) -> v1::PodSandboxStatus {
    let config = &sandbox.config;
    v1::PodSandboxStatus {
        id: sandbox.id.to_string(),
        metadata: Some(metadata(config)),
        state: state(sandbox.state).into(),
        created_at: time(sandbox.created_at),
        network: Some(network(sandbox)),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace { options: Some(namespaces(config)) }),
        }),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        runtime_handler: config.runtime_handler.clone(),
    }
}

pub(super) fn metadata(config: &SandboxConfig) -> v1::PodSandboxMetadata {
    let name = &config.name;
    v1::PodSandboxMetadata {
        name: name.name.clone(),
        uid: name.uid.clone(),
        namespace: name.namespace.clone(),
        attempt: name.attempt,
    }
}

pub(super) fn state(state: SandboxState) -> v1::PodSandboxState {
    match state {
        SandboxState::Ready => v1::PodSandboxState::SandboxReady,
        SandboxState::NotReady => v1::PodSandboxState::SandboxNotready,
    }
}

/// Returns the addresses of a pod. For a pod in the node's network both are empty; kubelet then uses the node's.
fn network(sandbox: &SandboxStatus) -> v1::PodSandboxNetworkStatus {
    let mut ips = sandbox.ips.iter().map(ToString::to_string);
    v1::PodSandboxNetworkStatus {
        ip: ips.next().unwrap_or_default(),
        additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
    }
}

pub(super) fn namespaces(config: &SandboxConfig) -> v1::NamespaceOption {
    let shared = |mode| match mode {
        SharedMode::Pod => v1::NamespaceMode::Pod.into(),
        SharedMode::Node => v1::NamespaceMode::Node.into(),
    };
    let pid = match config.pid {
        PidMode::Pod => v1::NamespaceMode::Pod,
        PidMode::Container => v1::NamespaceMode::Container,
        PidMode::Node => v1::NamespaceMode::Node,
    };
    v1::NamespaceOption {
        network: shared(config.network),
        ipc: shared(config.ipc),
        pid: pid.into(),
        userns_options: config.user_namespace.as_ref().map(user_namespace),
        ..Default::default()
    }
}

fn user_namespace(maps: &UserMappings) -> v1::UserNamespace {
    let map = |map: &[oci::IdMapping]| {
        let range =
            |m: &oci::IdMapping| v1::IdMapping { host_id: m.host_id, container_id: m.container_id, length: m.size };
        map.iter().map(range).collect()
    };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: map(&maps.uids), gids: map(&maps.gids) }
}
