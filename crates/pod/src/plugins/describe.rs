//! Pods and containers as messages to plugins.

use nri::messages::{self, ContainerState as State, Int, UInt};

use super::resources::to_message;
use crate::{
    ContainerState, SeccompChoice,
    parts::Parts,
    store::{Container, Sandbox},
};

/// Describes a pod.
pub(crate) fn pod(parts: &Parts, sandbox: &Sandbox) -> messages::Pod {
    let (config, record) = (sandbox.config(), sandbox.record());
    let netns = record
        .netns
        .as_ref()
        .map(|path| messages::Namespace { r#type: "network".to_owned(), path: path.display().to_string() });
    let resources = record.resources.as_ref().or(config.resources.as_ref()).map(to_message);
    let linux = messages::PodLinux {
        pod_overhead: record.overhead.as_ref().or(config.overhead.as_ref()).map(to_message),
        pod_resources: resources,
        cgroup_parent: config.cgroup_parent.clone().unwrap_or_default(),
        cgroups_path: parts.node.cgroup_of(sandbox),
        namespaces: netns.into_iter().collect(),
        resources: None,
    };
    let ips = record.attachment.as_ref().map(|attachment| attachment.ips.iter().map(ToString::to_string).collect());
    messages::Pod {
        id: sandbox.id().to_string(),
        name: config.name.name.clone(),
        uid: config.name.uid.clone(),
        namespace: config.name.namespace.clone(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: config.runtime_handler.clone(),
        linux: Some(linux),
        pid: 0,
        ips: ips.unwrap_or_default(),
    }
}

/// Describes a container. Without its specification, only what the request names is known.
pub(crate) fn container(container: &Container, spec: Option<&oci::Spec>) -> messages::Container {
    let (config, status) = (container.config(), container.status());
    let time = |nanoseconds: u64| i64::try_from(nanoseconds).unwrap_or_default();
    let process = spec.and_then(|spec| spec.process.as_ref());
    messages::Container {
        id: container.id().to_string(),
        pod_sandbox_id: container.metadata.sandbox.to_string(),
        name: config.name.clone(),
        state: match status.state {
            ContainerState::Created => State::Created,
            ContainerState::Running => State::Running,
            ContainerState::Exited => State::Stopped,
            ContainerState::Unknown => State::Unknown,
        }
        .into(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        args: process.map(|process| process.args.clone()).unwrap_or_default(),
        env: process.map(|process| process.env.clone()).unwrap_or_default(),
        mounts: spec.map(|spec| spec.mounts.iter().map(mount).collect()).unwrap_or_default(),
        // As with containerd, the field is never absent.
        hooks: Some(spec.and_then(|spec| spec.hooks.as_ref()).map(hooks).unwrap_or_default()),
        linux: Some(linux(container, spec)),
        pid: status.pid.unwrap_or_default(),
        rlimits: process.map(|process| process.rlimits.iter().map(rlimit).collect()).unwrap_or_default(),
        created_at: time(status.created_at),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code.unwrap_or_default(),
        status_reason: status.reason,
        status_message: status.message,
        cdi_devices: config.cdi_devices.iter().map(|name| messages::CdiDevice { name: name.clone() }).collect(),
        user: process.map(|process| messages::User {
            uid: process.user.uid,
            gid: process.user.gid,
            additional_gids: process.user.additional_gids.clone(),
        }),
        image: Some(messages::Image {
            name: config.user_specified_image.clone(),
            digest: String::new(),
            config_digest: container.metadata.image_id.clone(),
        }),
    }
}

fn linux(container: &Container, spec: Option<&oci::Spec>) -> messages::ContainerLinux {
    let security = &container.config().security;
    let (profile_type, localhost_ref) = match &security.seccomp {
        _ if security.privileged => (1, String::new()),
        SeccompChoice::RuntimeDefault => (0, String::new()),
        SeccompChoice::Unconfined => (1, String::new()),
        SeccompChoice::Localhost(path) => (2, path.display().to_string()),
    };
    let seccomp_profile = Some(messages::SecurityProfile { profile_type, localhost_ref });
    // The record has the resources after the last update, the specification those of the creation.
    let updated = container.record().resources.as_ref().map(to_message);
    let Some(linux) = spec.and_then(|spec| spec.linux.as_ref()) else {
        let resources = updated.or_else(|| Some(to_message(&container.config().resources)));
        return messages::ContainerLinux { seccomp_profile, resources, ..messages::ContainerLinux::default() };
    };
    let oom_score_adj = spec.and_then(|spec| spec.process.as_ref()).and_then(|process| process.oom_score_adj);
    let namespace = |namespace: &oci::Namespace| messages::Namespace {
        r#type: super::namespace_name(namespace.kind).to_owned(),
        path: namespace.path.clone().unwrap_or_default(),
    };
    let net_device = |(host, device): (&String, &oci::NetDevice)| {
        (host.clone(), messages::NetDevice { name: device.name.clone().unwrap_or_default() })
    };
    messages::ContainerLinux {
        namespaces: linux.namespaces.iter().map(namespace).collect(),
        devices: linux.devices.iter().map(device).collect(),
        resources: updated.or_else(|| linux.resources.as_ref().map(to_message)),
        oom_score_adj: oom_score_adj.map(|value| Int { value: value.into() }),
        cgroups_path: linux.cgroups_path.clone().unwrap_or_default(),
        seccomp_profile,
        sysctl: linux.sysctl.clone(),
        net_devices: linux.net_devices.iter().map(net_device).collect(),
        rdt: linux.intel_rdt.as_ref().map(rdt),
        ..messages::ContainerLinux::default()
    }
}

fn rdt(rdt: &oci::IntelRdt) -> messages::Rdt {
    messages::Rdt {
        clos_id: rdt.clos_id.clone().map(|value| messages::Text { value }),
        schemata: (!rdt.schemata.is_empty()).then(|| messages::Texts { value: rdt.schemata.clone() }),
        enable_monitoring: Some(messages::Bool { value: rdt.enable_monitoring }),
        remove: false,
    }
}

fn mount(mount: &oci::Mount) -> messages::Mount {
    messages::Mount {
        destination: mount.destination.clone(),
        r#type: mount.kind.clone().unwrap_or_default(),
        source: mount.source.clone().unwrap_or_default(),
        options: mount.options.clone(),
    }
}

fn device(device: &oci::Device) -> messages::Device {
    let number = |value: Option<u32>| value.map(|value| UInt { value });
    messages::Device {
        path: device.path.clone(),
        r#type: match device.kind {
            oci::DeviceKind::Char => "c",
            oci::DeviceKind::Block => "b",
            oci::DeviceKind::Fifo => "p",
        }
        .to_owned(),
        major: device.major,
        minor: device.minor,
        file_mode: number(device.file_mode),
        uid: number(device.uid),
        gid: number(device.gid),
    }
}

fn rlimit(limit: &oci::Rlimit) -> messages::Rlimit {
    messages::Rlimit { r#type: limit.kind.clone(), hard: limit.hard, soft: limit.soft }
}

fn hooks(hooks: &oci::Hooks) -> messages::Hooks {
    let hook = |hook: &oci::Hook| messages::Hook {
        path: hook.path.clone(),
        args: hook.args.clone(),
        env: hook.env.clone(),
        timeout: hook.timeout.map(|value| Int { value }),
    };
    let list = |hooks: &[oci::Hook]| hooks.iter().map(hook).collect();
    messages::Hooks {
        prestart: list(&hooks.prestart),
        create_runtime: list(&hooks.create_runtime),
        create_container: list(&hooks.create_container),
        start_container: list(&hooks.start_container),
        poststart: list(&hooks.poststart),
        poststop: list(&hooks.poststop),
    }
}
