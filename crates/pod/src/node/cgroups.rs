//! Cgroups of pods.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use super::{Node, pod_limits::pod_limits};
use crate::{Error, error::failed, operation::blocking, store::Sandbox};

impl Node {
    /// Returns the path of the parent cgroup of a pod's containers.
    pub(crate) fn cgroup_of(&self, sandbox: &Sandbox) -> String {
        match &sandbox.config().cgroup_parent {
            Some(parent) => format!("/{}", parent.trim_matches('/')),
            None => format!("/{}/{}", self.config.default_cgroup_parent.trim_matches('/'), sandbox.id()),
        }
    }

    /// Returns the path of the cgroup of a pod's init.
    pub(crate) fn init_cgroup_of(&self, sandbox: &Sandbox) -> String {
        format!("{}/{}-init", self.cgroup_of(sandbox), sandbox.id())
    }

    /// Creates the cgroup of a pod that does not use a caller's cgroup and has limits. Without limits the pod's first
    /// container creates it.
    pub(crate) fn make_pod_cgroup(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let config = sandbox.config();
        let limits = pod_limits(config.resources.as_ref(), config.overhead.as_ref())?;
        let (None, Some(limits)) = (&config.cgroup_parent, limits) else { return Ok(()) };
        let path = self.cgroup_of(sandbox);
        let operation = format!("create cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&operation))?;
        Group::create(&self.trees, &path, &limits).map(drop).map_err(failed(operation))
    }

    /// Removes the cgroup of a pod that does not use a caller's cgroup; succeeds if it does not exist.
    pub(crate) async fn remove_pod_cgroup(self: &Arc<Self>, sandbox: &Sandbox) -> Result<(), Error> {
        if sandbox.config().cgroup_parent.is_some() {
            return Ok(());
        }
        self.remove_group(self.cgroup_of(sandbox), sandbox.id().as_str()).await
    }

    /// Kills the processes in the cgroup of an object that no monitor holds anymore, and removes the cgroup: a monitor
    /// that died while it created a container or a pod's init had not reported it to anyone. Succeeds if the cgroup
    /// does not exist, for example because the monitor removed it. `owner` is an id that must occur in the path: it
    /// prevents an unreadable record from naming a cgroup of other objects.
    pub(crate) async fn remove_group(self: &Arc<Self>, path: String, owner: &str) -> Result<(), Error> {
        if owner.is_empty() || !path.rsplit('/').next().is_some_and(|name| name.starts_with(owner)) {
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

    /// Removes the parent cgroup of pods that name none. The caller makes sure that no pod exists.
    pub(crate) async fn remove_cgroup_parent(self: &Arc<Self>) -> Result<(), Error> {
        let node = Arc::clone(self);
        blocking(move || {
            let parent = GroupPath::parse(&node.config.default_cgroup_parent).and_then(|path| path.join("pod"));
            node.trees.remove_empty_parents(&parent.map_err(|e| Error::internal(e.to_string()))?, None);
            Ok(())
        })
        .await
    }
}
