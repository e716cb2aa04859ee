//! Mounts that are opened before the container's root is entered, because the init could not make them: device nodes
//! and v1 cgroup hierarchies of a container in a user namespace, or of a caller that is in one.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Error, Plan, mounts::cgroup::CgroupMounts, namespaces::MountNamespace};

/// Detached mounts that the init attaches.
#[derive(Debug, Default)]
pub(crate) struct PreopenedMounts {
    /// One for each of the plan's devices, in their order; `None`: the init makes the nodes itself.
    pub(crate) devices: Option<Vec<OwnedFd>>,
    /// Mounts of v1 cgroup hierarchies, by the index of the entry in the spec's mounts.
    pub(crate) cgroups: Vec<(usize, CgroupMounts)>,
}

impl PreopenedMounts {
    /// Opens the plan's mounts. File systems are mounted temporarily only in a mount namespace without other processes.
    pub(crate) fn open(plan: &Plan) -> Result<Self, Error> {
        let private_namespace = plan.namespaces.mount == MountNamespace::New || plan.namespaces.user.is_other();
        let may_mount = plan.privileges.device_nodes && private_namespace;
        let devices = if plan.privileges.device_nodes && !plan.namespaces.user.is_other() {
            None
        } else if may_mount {
            let mappings = plan.namespaces.user.mappings();
            let nodes = plan.devices.make_on_tmpfs(|uid, gid| match mappings {
                // An owner that is not mapped stays: inside it shows as the overflow id.
                Some(maps) => (maps.outer_uid(uid).unwrap_or(uid), maps.outer_gid(gid).unwrap_or(gid)),
                None => (uid, gid),
            })?;
            Some(nodes)
        } else {
            Some(plan.devices.clone_from_host()?)
        };
        Ok(Self { devices, cgroups: plan.mounts.preopen_cgroups(may_mount)? })
    }

    /// Returns the descriptors that the init needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let cgroups = self.cgroups.iter().flat_map(|(_, mounts)| mounts.descriptors());
        self.devices.iter().flatten().map(AsFd::as_fd).chain(cgroups)
    }
}
