//! What must be had before the container's root is entered, in whose place init could not make it: device nodes and v1
//! cgroup trees of a container in a user namespace, or of a caller that is in one.

use std::ffi::CStr;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::CWD,
    mount::{OpenTreeFlags, open_tree},
};

use crate::{Error, Plan, error::During, mounts::cgroup::Groups, namespaces::MountNamespace};

/// Detached mounts.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// One for each of the plan's devices, in their order; none: init can make nodes.
    pub(crate) devices: Option<Vec<OwnedFd>>,
    /// For each mount of v1 cgroup trees, by its index.
    pub(crate) groups: Vec<(usize, Groups)>,
}

impl Gathered {
    /// In a mount namespace that nobody else is in, unless that is the caller's.
    pub(crate) fn of(plan: &Plan) -> Result<Self, Error> {
        let alone = plan.namespaces.mount == MountNamespace::New || plan.namespaces.user.is_other();
        let whole = plan.rights.nodes && alone;
        let devices = if plan.rights.nodes && !plan.namespaces.user.is_other() {
            None
        } else if whole {
            let mappings = plan.namespaces.user.mappings();
            let nodes = plan.devices.make_apart(|uid, gid| match mappings {
                // What has no owner inside belongs to nobody.
                Some(maps) => (maps.outer_uid(uid).unwrap_or(uid), maps.outer_gid(gid).unwrap_or(gid)),
                None => (uid, gid),
            })?;
            Some(nodes)
        } else {
            Some(plan.devices.clone_hosts()?)
        };
        Ok(Self { devices, groups: plan.mounts.gather_groups(whole)? })
    }

    /// Descriptors that init needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let groups = self.groups.iter().flat_map(|(_, groups)| groups.descriptors());
        self.devices.iter().flatten().map(AsFd::as_fd).chain(groups)
    }

    /// The groups of this mount.
    pub(crate) fn groups(&self, index: usize) -> Option<&Groups> {
        self.groups.iter().find(|(of, _)| *of == index).map(|(_, groups)| groups)
    }
}

/// A detached clone of what is at `path`.
pub(crate) fn clone(path: &CStr, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    open_tree(CWD, path, flags).during(|| format!("clone {path:?} of the host"))
}
