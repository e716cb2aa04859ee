//! Builds the record of a created container.

use std::path::PathBuf;

use crate::{
    clock,
    failure::Failure,
    state::{Record, VERSION, start_time},
};

/// A container whose init process exists.
pub(crate) struct NewContainer<'a> {
    pub(crate) id: &'a str,
    pub(crate) pid: i32,
    pub(crate) group: &'a cgroup::Group,
    pub(crate) own_keyring: bool,
    /// Absolute.
    pub(crate) bundle: PathBuf,
    /// Absolute.
    pub(crate) rootfs: PathBuf,
}

/// Returns the record of a container, with the start time of its init.
pub(crate) fn record(spec: oci::Spec, container: NewContainer<'_>) -> Result<Record, Failure> {
    let exited = || Failure::new("the container's process exited before it was started");
    let [bundle, rootfs] = [container.bundle, container.rootfs].map(|path| path.to_string_lossy().into_owned());
    let hosts_mounts = uses_caller_mounts(&spec.linux);
    let linux = spec.linux.unwrap_or_default();
    Ok(Record {
        version: VERSION,
        oci_version: spec.oci_version,
        id: container.id.to_owned(),
        pid: container.pid,
        start_time: start_time(container.pid).ok_or_else(exited)?,
        bundle,
        rootfs,
        created: clock::now(),
        owner: rustix::process::geteuid().as_raw(),
        cgroup: container.group.path().as_str().to_owned(),
        own_pids: has_new_pid_namespace(&linux),
        own_users: linux.namespaces.iter().any(|namespace| namespace.kind == oci::NamespaceType::User),
        hosts_mounts,
        own_keyring: container.own_keyring,
        systemd_unit: container.group.unit_name().map(str::to_owned),
        annotations: spec.annotations,
        process: spec.process.unwrap_or_default(),
        resources: linux.resources,
        hooks: spec.hooks,
        intel_rdt: linux.intel_rdt,
        personality: linux.personality,
        memory_policy: linux.memory_policy,
        seccomp_agent: linux.seccomp.and_then(seccomp_agent),
    })
}

/// Reports whether the container has no mount namespace, so that it is mounted in the caller's.
pub(super) fn uses_caller_mounts(linux: &Option<oci::Linux>) -> bool {
    let mut namespaces = linux.iter().flat_map(|linux| &linux.namespaces);
    !namespaces.any(|namespace| namespace.kind == oci::NamespaceType::Mount)
}

fn seccomp_agent(profile: oci::Seccomp) -> Option<[String; 2]> {
    let path = profile.listener_path.filter(|path| !path.is_empty())?;
    Some([path, profile.listener_metadata.unwrap_or_default()])
}

fn has_new_pid_namespace(linux: &oci::Linux) -> bool {
    let pid = linux.namespaces.iter().find(|namespace| namespace.kind == oci::NamespaceType::Pid);
    pid.is_some_and(|namespace| namespace.path.as_deref().unwrap_or("").is_empty())
}
