//! The OCI spec of a container: what was asked for, what its image says, what every container has.

pub(crate) mod apparmor;
mod arguments;
mod capabilities;
mod devices;
mod masks;
mod mounts;

use std::collections::BTreeMap;

use image::ImageConfig;
use oci::{Hooks, Linux, Namespace, NamespaceType, NetDevice, Process, Rlimit, Root, Spec, User};

use super::{ContainerConfig, ContainerMetadata, selinux};
use crate::{Error, PidMode, SandboxConfig, SharedMode};

pub(crate) use arguments::{absolute, set};
pub(super) use mounts::{Extra, Mounts, Sources, normal};

/// What the spec is made of.
pub(super) struct Facts<'a> {
    pub(super) metadata: &'a ContainerMetadata,
    pub(super) sandbox: &'a SandboxConfig,
    pub(super) image: &'a ImageConfig,
    pub(super) user: User,
    /// What the pod is called inside.
    pub(super) hostname: &'a str,
    /// RLIMIT_NOFILE that this process was started with: its own is raised, its containers' is not.
    pub(super) nofile: Rlimit,
    /// What its CDI devices need.
    pub(super) edits: &'a cdi::Edits,
    /// Whether devices belong to the container's user.
    pub(super) own_devices: bool,
}

impl Facts<'_> {
    fn config(&self) -> &ContainerConfig {
        &self.metadata.config
    }
}

/// The capabilities of the container: what the seccomp profile depends on.
pub(super) fn capabilities(config: &ContainerConfig) -> Result<Vec<String>, Error> {
    capabilities::granted(&config.security)
}

/// The process: also what commands in the container are made of.
pub(super) fn process(facts: &Facts<'_>) -> Result<Process, Error> {
    let config = facts.config();
    let security = &config.security;
    let args = arguments::arguments(config, facts.image);
    if args.is_empty() {
        return Err(Error::invalid(format!(
            "no command: neither the request nor image {} names one",
            config.user_specified_image
        )));
    }
    let mut env = arguments::environment(config, facts.image, facts.hostname);
    for entry in &facts.edits.env {
        arguments::set(&mut env, entry.clone());
    }
    let mut user = facts.user.clone();
    for gid in &facts.edits.additional_gids {
        if !user.additional_gids.contains(gid) {
            user.additional_gids.push(*gid);
        }
    }
    let cwd = config.working_dir.clone().filter(|dir| !dir.is_empty());
    let cwd = cwd.or_else(|| Some(facts.image.working_dir.clone()).filter(|dir| !dir.is_empty()));
    Ok(Process {
        terminal: config.tty,
        console_size: None,
        user,
        args,
        env,
        cwd: arguments::absolute(&cwd.unwrap_or_default()),
        capabilities: Some(capabilities::sets(&capabilities(config)?, &security.add_ambient_capabilities)?),
        rlimits: vec![facts.nofile.clone()],
        no_new_privileges: security.no_new_privileges,
        apparmor_profile: apparmor::apparmor(security)?,
        oom_score_adj: Some(config.oom_score_adj),
        selinux_label: selinux::labels(security).map(|labels| labels.process),
        ..Process::default()
    })
}

/// The whole, for these mounts.
pub(super) fn build(facts: &Facts<'_>, process: Process, mounts: Vec<oci::Mount>) -> Result<Spec, Error> {
    let config = facts.config();
    let security = &config.security;
    let (devices, rules) = devices::devices(facts)?;
    let mut resources = config.resources.clone();
    resources.devices = rules;
    let users = facts.sandbox.user_namespace.as_ref();
    let linux = Linux {
        resources: Some(resources),
        cgroups_path: Some(facts.metadata.cgroup.clone()),
        namespaces: namespaces(facts.sandbox, config),
        uid_mappings: users.map(|maps| maps.uids.clone()).unwrap_or_default(),
        gid_mappings: users.map(|maps| maps.gids.clone()).unwrap_or_default(),
        devices,
        masked_paths: masks::masked(security),
        readonly_paths: masks::readonly(security),
        rootfs_propagation: None,
        mount_label: selinux::labels(security).map(|labels| labels.file),
        intel_rdt: facts.edits.intel_rdt.as_ref().map(cdi::IntelRdt::to_oci),
        net_devices: net_devices(facts.edits),
        ..Linux::default()
    };
    Ok(Spec {
        oci_version: "1.2.0".into(),
        process: Some(process),
        root: Some(Root { path: "rootfs".into(), readonly: security.readonly_rootfs }),
        mounts,
        hooks: hooks(facts.edits),
        linux: Some(linux),
        ..Spec::default()
    })
}

fn hooks(edits: &cdi::Edits) -> Option<Hooks> {
    let mut hooks = Hooks::default();
    for hook in &edits.hooks {
        hook.list(&mut hooks).push(hook.to_oci());
    }
    (!edits.hooks.is_empty()).then_some(hooks)
}

fn net_devices(edits: &cdi::Edits) -> BTreeMap<String, NetDevice> {
    let device =
        |device: &cdi::NetDevice| (device.host_interface_name.clone(), NetDevice { name: Some(device.name.clone()) });
    edits.net_devices.iter().map(device).collect()
}

/// New ones and, for those that a descriptor is given for, joined ones; what is not named is the node's.
fn namespaces(sandbox: &SandboxConfig, config: &ContainerConfig) -> Vec<Namespace> {
    let mut kinds = vec![NamespaceType::Mount];
    if config.security.pid != PidMode::Node || config.security.target.is_some() {
        kinds.push(NamespaceType::Pid);
    }
    if sandbox.network == SharedMode::Pod {
        kinds.extend([NamespaceType::Network, NamespaceType::Uts]);
    }
    if sandbox.ipc == SharedMode::Pod {
        kinds.push(NamespaceType::Ipc);
    }
    if sandbox.user_namespace.is_some() {
        kinds.push(NamespaceType::User);
    }
    if !config.security.privileged {
        kinds.push(NamespaceType::Cgroup);
    }
    kinds.into_iter().map(|kind| Namespace { kind, path: None }).collect()
}

#[cfg(test)]
mod tests;
