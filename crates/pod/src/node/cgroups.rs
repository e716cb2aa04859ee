//! Cgroups of pods.

use std::sync::Arc;

use cgroup::{Group, GroupPath, Hierarchies, Limits, systemd::expand_slice};

use super::{Node, cgroup_names, pod_limits::pod_limits, units::Registration};
use crate::{
    CgroupDriver, CgroupNames, ContainerId, Error, SharedMode, error::failed, operation::blocking, store::Sandbox,
};

/// Exists while systemd is the init of the machine (sd_booted(3)).
const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// Returns the driver to use: the configured one, or that of the node.
///
/// # Errors
/// The node does not support the configured one.
pub(crate) fn driver(configured: Option<CgroupDriver>, trees: &Hierarchies) -> Result<CgroupDriver, Error> {
    let has_systemd = offload::in_place(|| std::fs::symlink_metadata(SYSTEMD_RUNS).is_ok_and(|file| file.is_dir()));
    let supported = has_systemd && trees.layout() == cgroup::Layout::V2;
    match configured {
        None if supported => Ok(CgroupDriver::Systemd),
        Some(CgroupDriver::Systemd) if !supported => {
            let cause = if has_systemd { "cgroup v1 is in use" } else { "systemd is not running" };
            Err(Error::invalid(format!(
                "cgroup.driver: systemd needs systemd and cgroup v2 alone, but {cause}; set it to \"cgroupfs\""
            )))
        }
        configured => Ok(configured.unwrap_or_default()),
    }
}

impl Node {
    /// Returns the path of the parent cgroup of a pod's containers.
    pub(crate) fn cgroup_of(&self, sandbox: &Sandbox) -> String {
        match &sandbox.config().cgroup_parent {
            Some(parent) => format!("/{}", parent.trim_matches('/')),
            None => {
                let driver = sandbox.metadata.cgroup_driver;
                cgroup_names::pod(driver, &self.config.default_cgroup_parent, sandbox.id().as_str())
            }
        }
    }

    /// Returns the path of the cgroup of a container in a pod.
    pub(crate) fn cgroup_of_container(&self, sandbox: &Sandbox, id: &ContainerId) -> String {
        let (driver, names) = (sandbox.metadata.cgroup_driver, sandbox.metadata.cgroup_names);
        format!("{}/{}", self.cgroup_of(sandbox), cgroup_names::container(driver, names, id.as_str()))
    }

    /// Returns the path of the cgroup of a pod's init.
    pub(crate) fn init_cgroup_of(&self, sandbox: &Sandbox) -> String {
        let name = cgroup_names::init(sandbox.metadata.cgroup_driver, sandbox.id().as_str());
        format!("{}/{name}", self.cgroup_of(sandbox))
    }

    /// Returns the path of the empty cgroup of a pod, for which cAdvisor reports the network metrics, and which keeps
    /// controllers enabled in a slice; `None` if the pod does not have one.
    pub(crate) fn empty_cgroup_of(&self, sandbox: &Sandbox) -> Option<String> {
        let (metadata, id) = (&sandbox.metadata, sandbox.id().as_str());
        let has_network = metadata.cgroup_names == CgroupNames::Crio && sandbox.config().network == SharedMode::Pod;
        let name = match metadata.cgroup_driver {
            _ if has_network => cgroup_names::network(id),
            CgroupDriver::Systemd => cgroup_names::holder(id),
            CgroupDriver::Cgroupfs => return None,
        };
        Some(format!("{}/{name}", self.cgroup_of(sandbox)))
    }

    /// Creates the empty cgroup of a pod, if it has one.
    pub(crate) fn make_empty_cgroup(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let Some(path) = self.empty_cgroup_of(sandbox) else { return Ok(()) };
        let operation = format!("create cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&operation))?;
        if sandbox.metadata.cgroup_driver == CgroupDriver::Systemd {
            return self.trees.hold_controllers(&path).map_err(failed(operation));
        }
        let limits = Limits::from_spec(&oci::Resources::default()).map_err(failed(&operation))?;
        Group::create(&self.trees, &path, &limits).map(drop).map_err(failed(operation))
    }

    /// Creates the cgroup of a pod that does not use a caller's cgroup and has limits. Without limits the pod's first
    /// container creates it, except a slice, which is registered with systemd.
    pub(crate) fn make_pod_cgroup(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let config = sandbox.config();
        let limits = pod_limits(config.resources.as_ref(), config.overhead.as_ref())?;
        let limits = limits.or_else(|| Self::empty_slice(sandbox));
        let (None, Some((limits, resources))) = (&config.cgroup_parent, limits) else { return Ok(()) };
        let path = self.cgroup_of(sandbox);
        let operation = format!("create cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&operation))?;
        Group::create(&self.trees, &path, &limits).map(drop).map_err(failed(operation))?;
        self.register_slice(path, resources);
        Ok(())
    }

    /// Returns no limits for a pod that has a slice.
    fn empty_slice(sandbox: &Sandbox) -> Option<(Limits, oci::Resources)> {
        let resources = oci::Resources::default();
        let limits = Limits::from_spec(&resources).ok()?;
        (sandbox.metadata.cgroup_driver == CgroupDriver::Systemd).then_some((limits, resources))
    }

    /// Registers the cgroup of a pod with systemd, if it is a slice.
    pub(crate) fn register_slice(&self, path: GroupPath, resources: oci::Resources) {
        if path.name().ends_with(".slice") {
            self.units.register(Registration { path, process: None, resources });
        }
    }

    /// Registers the cgroup of a container or of a pod's init with systemd, if it is a scope. `process`: pid and start
    /// time of a process in it.
    pub(crate) fn register_scope(&self, path: &str, process: (u32, u64), resources: oci::Resources) {
        if let Some(path) = scope(path) {
            self.units.register(Registration { path, process: Some(process), resources });
        }
    }

    /// Passes the limits of a container to systemd, if it has a scope.
    pub(crate) fn update_scope(&self, path: &str, resources: oci::Resources) {
        if let Some(path) = scope(path) {
            self.units.update(path, resources);
        }
    }

    /// Makes systemd forget the scope of a container or of a pod's init that was removed.
    pub(crate) fn forget_scope(&self, path: &str) {
        if let Some(path) = scope(path) {
            self.units.stop(path);
        }
    }

    /// Removes the cgroup of a pod that does not use a caller's cgroup; succeeds if it does not exist.
    pub(crate) async fn remove_pod_cgroup(self: &Arc<Self>, sandbox: &Sandbox) -> Result<(), Error> {
        if sandbox.config().cgroup_parent.is_some() {
            return Ok(());
        }
        let path = self.cgroup_of(sandbox);
        self.remove_group(path.clone(), sandbox.id().as_str()).await?;
        if let Ok(path) = GroupPath::parse(&path)
            && sandbox.metadata.cgroup_driver == CgroupDriver::Systemd
        {
            self.units.stop(path);
        }
        Ok(())
    }

    /// Kills the processes in the cgroup of an object that no monitor holds anymore, and removes the cgroup: a monitor
    /// that died while it created a container or a pod's init had not reported it to anyone. Succeeds if the cgroup
    /// does not exist, for example because the monitor removed it. `owner` is an id that must occur in the name: it
    /// prevents an unreadable record from naming a cgroup of other objects.
    pub(crate) async fn remove_group(self: &Arc<Self>, path: String, owner: &str) -> Result<(), Error> {
        let is_owned = |name: &str| name.starts_with(owner) || cgroup_names::owner(name) == Some(owner);
        if owner.is_empty() || !path.rsplit('/').next().is_some_and(is_owned) {
            return Ok(());
        }
        let node = Arc::clone(self);
        blocking(move || {
            let operation = format!("remove cgroup {path}");
            let path = GroupPath::parse(&path).map_err(failed(&operation))?;
            Group::remove_leftover(&node.trees, &path).map_err(failed(operation))
        })
        .await
    }

    /// Removes the cgroup of a failed creation whose path an NRI plugin chose. Its processes exit by themselves, because
    /// their monitor is gone; nothing is killed.
    pub(crate) async fn remove_unnamed_group(self: &Arc<Self>, path: String) -> Result<(), Error> {
        let node = Arc::clone(self);
        blocking(move || {
            let operation = format!("remove cgroup {path}");
            let path = GroupPath::parse(&path).map_err(failed(&operation))?;
            Group::remove_abandoned(&node.trees, &path).map_err(failed(operation))
        })
        .await
    }

    /// Removes the parent cgroup of pods of a driver that name none. The caller makes sure that no pod of it exists, or,
    /// for a slice, that none is created until systemd has stopped it. A slice stays if anything is in it: it may be that
    /// of another engine, too.
    pub(crate) async fn remove_cgroup_parent(self: &Arc<Self>, driver: CgroupDriver) -> Result<(), Error> {
        let node = Arc::clone(self);
        blocking(move || {
            let parent = &node.config.default_cgroup_parent;
            let path = match driver {
                CgroupDriver::Cgroupfs => GroupPath::parse(parent),
                CgroupDriver::Systemd => expand_slice(&cgroup_names::parent_slice(parent)),
            };
            let path = path.map_err(|e| Error::internal(e.to_string()))?;
            match driver {
                CgroupDriver::Cgroupfs => {
                    let pod = path.join("pod").map_err(|e| Error::internal(e.to_string()))?;
                    node.trees.remove_empty_parents(&pod, None);
                }
                // Slices are used with this layout only.
                CgroupDriver::Systemd if node.trees.layout() != cgroup::Layout::V2 => {}
                CgroupDriver::Systemd if node.trees.contains(&path) && !node.trees.has_children(&path) => {
                    node.units.stop_empty(path);
                }
                CgroupDriver::Systemd => {}
            }
            Ok(())
        })
        .await
    }
}

/// Returns the path of a scope of this engine; `None` for other cgroups.
fn scope(path: &str) -> Option<GroupPath> {
    let is_scope = path.ends_with(".scope")
        && path.rsplit('/').next().is_some_and(|name| cgroup_names::owner_of_unit(name).is_some());
    is_scope.then(|| GroupPath::parse(path).ok()).flatten()
}
