//! The OCI runtime specification of a container, built from the request, the image's configuration and the defaults of
//! every container.

pub(crate) mod apparmor;
mod arguments;
mod capabilities;
pub(super) mod devices;
pub(super) mod edits;
mod masks;
mod mounts;

use image::ImageConfig;
use oci::{Linux, Namespace, NamespaceType, Process, Rlimit, Root, Spec, User};

use super::selinux;
use crate::{
    ContainerConfig, ContainerDefaults, Error, PidMode, PrivilegedDevices, SandboxConfig, SharedMode,
    store::ContainerMetadata,
};

pub(super) use arguments::arguments;
pub(crate) use arguments::{absolute, set};
pub(super) use mounts::{ExtraMount, Mounts, Sources, normalize};

/// The inputs that a specification is built from.
pub(super) struct SpecInputs<'a> {
    pub(super) metadata: &'a ContainerMetadata,
    pub(super) sandbox: &'a SandboxConfig,
    pub(super) image: &'a ImageConfig,
    pub(super) user: User,
    /// Hostname of the pod.
    pub(super) hostname: &'a str,
    /// RLIMIT_NOFILE that this process was started with. This process raises its own limit, but containers get the
    /// original one.
    pub(super) nofile: Rlimit,
    /// What the administrator configured for all containers.
    pub(super) defaults: &'a ContainerDefaults,
    /// Whether devices are owned by the container's user (`device_ownership_from_security_context`).
    pub(super) device_ownership: bool,
    /// Devices of a privileged container.
    pub(super) privileged_devices: PrivilegedDevices,
}

impl SpecInputs<'_> {
    fn config(&self) -> &ContainerConfig {
        &self.metadata.config
    }
}

/// Returns the capabilities of the container, on which the seccomp profile depends.
pub(super) fn capabilities(config: &ContainerConfig, defaults: &ContainerDefaults) -> Result<Vec<String>, Error> {
    capabilities::granted(&config.security, &defaults.capabilities)
}

/// Builds the process, which is also the template of processes exec'd in the container.
pub(super) fn process(inputs: &SpecInputs<'_>) -> Result<Process, Error> {
    let config = inputs.config();
    let security = &config.security;
    let args = arguments::arguments(config, inputs.image);
    if args.is_empty() {
        return Err(Error::invalid(format!(
            "no command: neither the request nor the image {} specifies one",
            config.user_specified_image
        )));
    }
    let env = arguments::environment(config, inputs.image, inputs.hostname, &inputs.defaults.env);
    let cwd = config.working_dir.clone().filter(|dir| !dir.is_empty());
    let cwd = cwd.or_else(|| Some(inputs.image.working_dir.clone()).filter(|dir| !dir.is_empty()));
    Ok(Process {
        terminal: config.tty,
        console_size: None,
        user: inputs.user.clone(),
        args,
        env,
        cwd: arguments::absolute(&cwd.unwrap_or_default()),
        capabilities: Some(capabilities::sets(
            &capabilities(config, inputs.defaults)?,
            &security.add_ambient_capabilities,
        )?),
        rlimits: inputs.defaults.rlimits(&inputs.nofile),
        no_new_privileges: security.no_new_privileges,
        apparmor_profile: apparmor::apparmor(security)?,
        oom_score_adj: Some(config.oom_score_adj),
        selinux_label: selinux::labels(security).map(|labels| labels.process),
        ..Process::default()
    })
}

/// Builds the specification from its process and mounts.
pub(super) fn build(inputs: &SpecInputs<'_>, process: Process, mounts: Vec<oci::Mount>) -> Result<Spec, Error> {
    let config = inputs.config();
    let security = &config.security;
    let (devices, rules) = devices::devices(inputs)?;
    let mut resources = config.resources.clone();
    resources.devices = rules;
    inputs.defaults.limit_pids(&mut resources);
    let users = inputs.sandbox.user_namespace.as_ref();
    let linux = Linux {
        resources: Some(resources),
        cgroups_path: Some(inputs.metadata.cgroup.clone()),
        namespaces: namespaces(inputs.sandbox, config),
        uid_mappings: users.map(|maps| maps.uids.clone()).unwrap_or_default(),
        gid_mappings: users.map(|maps| maps.gids.clone()).unwrap_or_default(),
        devices,
        masked_paths: masks::masked(security),
        readonly_paths: masks::readonly(security),
        rootfs_propagation: None,
        mount_label: selinux::labels(security).map(|labels| labels.file),
        ..Linux::default()
    };
    Ok(Spec {
        oci_version: "1.2.0".into(),
        process: Some(process),
        root: Some(Root { path: "rootfs".into(), readonly: security.readonly_rootfs }),
        mounts,
        linux: Some(linux),
        ..Spec::default()
    })
}

/// Returns the namespaces of the container: those that a descriptor is supplied for are joined, the others are created.
/// A namespace that is not listed is that of the node.
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
