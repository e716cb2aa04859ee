//! The record of a container that was made.

use std::path::PathBuf;

use crate::{
    clock,
    failure::Failure,
    state::{Record, VERSION, start_time},
};

/// A container whose init is there.
pub(crate) struct Made<'a> {
    pub(crate) id: &'a str,
    pub(crate) pid: i32,
    pub(crate) group: &'a cgroup::Group,
    pub(crate) own_keyring: bool,
    /// Absolute.
    pub(crate) bundle: PathBuf,
    /// Absolute.
    pub(crate) rootfs: PathBuf,
}

pub(crate) fn record(spec: oci::Spec, made: Made<'_>) -> Result<Record, Failure> {
    let gone = || Failure::new("the container's process ended before it was started");
    let [bundle, rootfs] = [made.bundle, made.rootfs].map(|path| path.to_string_lossy().into_owned());
    let hosts_mounts = hosts_mounts(&spec.linux);
    let linux = spec.linux.unwrap_or_default();
    Ok(Record {
        version: VERSION,
        oci_version: spec.oci_version,
        id: made.id.to_owned(),
        pid: made.pid,
        start_time: start_time(made.pid).ok_or_else(gone)?,
        bundle,
        rootfs,
        created: clock::now(),
        owner: rustix::process::geteuid().as_raw(),
        cgroup: made.group.path().as_str().to_owned(),
        own_pids: has_own_pids(&linux),
        own_users: linux.namespaces.iter().any(|namespace| namespace.kind == oci::NamespaceType::User),
        hosts_mounts,
        own_keyring: made.own_keyring,
        systemd_unit: made.group.unit_name().map(str::to_owned),
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

/// Whether its mounts are made in the caller's namespace.
pub(super) fn hosts_mounts(linux: &Option<oci::Linux>) -> bool {
    let mut namespaces = linux.iter().flat_map(|linux| &linux.namespaces);
    !namespaces.any(|namespace| namespace.kind == oci::NamespaceType::Mount)
}

fn seccomp_agent(profile: oci::Seccomp) -> Option<[String; 2]> {
    let path = profile.listener_path.filter(|path| !path.is_empty())?;
    Some([path, profile.listener_metadata.unwrap_or_default()])
}

fn has_own_pids(linux: &oci::Linux) -> bool {
    let pid = linux.namespaces.iter().find(|namespace| namespace.kind == oci::NamespaceType::Pid);
    pid.is_some_and(|namespace| namespace.path.as_deref().unwrap_or("").is_empty())
}
