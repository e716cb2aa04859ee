use cri_proto::v1;
use pod::{ContainerConfig, ContainerState, ContainerStatus, ContainerSummary, Image, Propagation, Volume, oci};

use super::time;
use crate::config::signal_message;

/// Exit code of a container whose exit nothing observed.
const UNKNOWN_EXIT: i32 = 255;

/// Converts to a row of `ListContainers`.
pub(crate) fn listed(container: &ContainerSummary<'_>) -> v1::Container {
    let config = container.config;
    v1::Container {
        id: container.id.to_string(),
        pod_sandbox_id: container.sandbox.to_string(),
        metadata: Some(metadata(config)),
        image: Some(spec(config, config.image.clone())),
        image_ref: container.image_id.to_owned(),
        state: state(container.state).into(),
        created_at: time(container.created_at),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        image_id: container.image_id.to_owned(),
    }
}

/// Converts to a `ContainerStatus`; `image` is the image of the container if it still exists.
pub(crate) fn status(container: &ContainerStatus, image: Option<&Image>) -> v1::ContainerStatus {
    let config = &container.config;
    let tag = image.and_then(|i| i.repo_tags.first().or(i.repo_digests.first())).unwrap_or(&config.image);
    v1::ContainerStatus {
        id: container.id.to_string(),
        metadata: Some(metadata(config)),
        state: state(container.state).into(),
        created_at: time(container.created_at),
        started_at: time(container.started_at),
        finished_at: time(container.finished_at),
        exit_code: exit_code(container),
        image: Some(spec(config, tag.clone())),
        image_ref: image.and_then(|i| i.repo_digests.first()).unwrap_or(&container.image_id).clone(),
        reason: container.reason.clone(),
        message: container.message.clone(),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        mounts: config.volumes.iter().map(mount).collect(),
        log_path: container.log_path.as_ref().map(|p| p.display().to_string()).unwrap_or_default(),
        resources: Some(v1::ContainerResources {
            linux: Some(resources(&container.resources, container.oom_score_adj.into())),
            windows: None,
        }),
        image_id: container.image_id.clone(),
        user: Some(user(&container.user)),
        stop_signal: signal_message(container.stop_signal).into(),
    }
}

fn exit_code(container: &ContainerStatus) -> i32 {
    match container.state {
        ContainerState::Exited | ContainerState::Unknown => container.exit_code.unwrap_or(UNKNOWN_EXIT),
        ContainerState::Created | ContainerState::Running => 0,
    }
}

pub(super) fn metadata(config: &ContainerConfig) -> v1::ContainerMetadata {
    v1::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }
}

pub(super) fn spec(config: &ContainerConfig, image: String) -> v1::ImageSpec {
    v1::ImageSpec { image, user_specified_image: config.user_specified_image.clone(), ..Default::default() }
}

pub(super) fn state(state: ContainerState) -> v1::ContainerState {
    match state {
        ContainerState::Created => v1::ContainerState::ContainerCreated,
        ContainerState::Running => v1::ContainerState::ContainerRunning,
        ContainerState::Exited => v1::ContainerState::ContainerExited,
        ContainerState::Unknown => v1::ContainerState::ContainerUnknown,
    }
}

pub(super) fn mount(volume: &Volume) -> v1::Mount {
    let propagation = match volume.propagation {
        Propagation::Private => v1::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => v1::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => v1::MountPropagation::PropagationBidirectional,
    };
    v1::Mount {
        container_path: volume.container_path.clone(),
        host_path: volume.host_path.display().to_string(),
        readonly: volume.readonly,
        selinux_relabel: volume.selinux_relabel,
        propagation: propagation.into(),
        uid_mappings: volume.uid_mappings.iter().map(mapping).collect(),
        gid_mappings: volume.gid_mappings.iter().map(mapping).collect(),
        recursive_read_only: volume.recursive_readonly,
        image: volume.image.as_ref().map(|image| v1::ImageSpec {
            image: image.image.clone(),
            image_ref: image.image_ref.clone(),
            ..Default::default()
        }),
        image_sub_path: volume.image.as_ref().map(|i| i.sub_path.display().to_string()).unwrap_or_default(),
        mount_options: volume.options.clone(),
    }
}

fn mapping(mapping: &oci::IdMapping) -> v1::IdMapping {
    v1::IdMapping { host_id: mapping.host_id, container_id: mapping.container_id, length: mapping.size }
}

/// Converts the current limits; 0 stands for a limit that is not set.
fn resources(resources: &oci::Resources, oom_score_adj: i64) -> v1::LinuxContainerResources {
    let oci::Resources { cpu, memory, hugepage_limits, unified, .. } = resources.clone();
    let (cpu, memory) = (cpu.unwrap_or_default(), memory.unwrap_or_default());
    let signed = |value: Option<u64>| value.map_or(0, |v| i64::try_from(v).unwrap_or(i64::MAX));
    v1::LinuxContainerResources {
        cpu_period: signed(cpu.period),
        cpu_quota: cpu.quota.unwrap_or(0),
        cpu_shares: signed(cpu.shares),
        memory_limit_in_bytes: memory.limit.unwrap_or(0),
        oom_score_adj,
        cpuset_cpus: cpu.cpus.unwrap_or_default(),
        cpuset_mems: cpu.mems.unwrap_or_default(),
        hugepage_limits: hugepage_limits
            .into_iter()
            .map(|h| v1::HugepageLimit { page_size: h.page_size, limit: h.limit })
            .collect(),
        unified: unified.into_iter().collect(),
        memory_swap_limit_in_bytes: memory.swap.unwrap_or(0),
    }
}

fn user(user: &oci::User) -> v1::ContainerUser {
    let linux = v1::LinuxContainerUser {
        uid: user.uid.into(),
        gid: user.gid.into(),
        supplemental_groups: user.additional_gids.iter().map(|gid| i64::from(*gid)).collect(),
    };
    v1::ContainerUser { linux: Some(linux) }
}
