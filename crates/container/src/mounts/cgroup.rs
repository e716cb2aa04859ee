//! `/sys/fs/cgroup` in a container: the v2 hierarchy, or on v1 and hybrid hosts a tmpfs with the container's group of
//! every v1 hierarchy, laid out as on a host.

use std::ffi::CString;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, mkdirat, symlinkat},
    io::Errno,
    mount::{
        MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
        move_mount, open_tree,
    },
};
use syscall::mount_attributes::MountAttributes;

use crate::{
    Error,
    error::During,
    mount_tree::{self, SCRATCH},
    mounts::{filesystem::FileSystem, option::Options},
};

/// The v1 hierarchies of this host, and the container's group in them.
#[derive(Debug)]
pub(crate) struct V1Hierarchies {
    /// Names as in `/proc/self/cgroup`: `cpu,cpuacct`, `name=systemd`.
    names: Vec<CString>,
    /// The container's group below every hierarchy's root, with the scratch mount point in front: `/proc/pinion/x`.
    group: CString,
}

impl V1Hierarchies {
    /// Reads the v1 hierarchies from the kernel; `None` if the v2 hierarchy has all controllers.
    pub(crate) fn find(group: &cgroup::GroupPath) -> Result<Option<Self>, Error> {
        let text = syscall::proc_file::read("/proc/self/cgroup").during(|| "read /proc/self/cgroup")?;
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split(':').nth(1)).filter(|name| !name.is_empty()).collect();
        if !names.iter().any(|name| !name.starts_with("name=")) {
            return Ok(None);
        }
        let names = names
            .iter()
            .map(|name| crate::spec_string::c_string("/proc/self/cgroup", name))
            .collect::<Result<_, _>>()?;
        let group = crate::spec_string::c_string("linux.cgroupsPath", &format!("/proc{}", group.as_str()))?;
        Ok(Some(Self { names, group }))
    }

    /// Opens detached mounts of the container's group of every hierarchy; if hierarchies may not be mounted
    /// (`may_mount`), of the host's `/sys/fs/cgroup`.
    pub(crate) fn open(&self, may_mount: bool) -> Result<CgroupMounts, Error> {
        if may_mount { Ok(CgroupMounts::Hierarchies(self.clone_groups()?)) } else { clone_hosts() }
    }

    fn clone_groups(&self) -> Result<Vec<(String, OwnedFd)>, Error> {
        mount_change(SCRATCH, MountPropagationFlags::PRIVATE).during(|| "make /proc private")?;
        let mut trees = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(c"cgroup", SCRATCH, c"cgroup", flags, Some(name.as_c_str()))
                .during(|| format!("mount the cgroup hierarchy {name:?}"))?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = match open_tree(CWD, self.group.as_c_str(), flags) {
                // The container has no group in a hierarchy that is not mounted on the host.
                Err(Errno::NOENT) => continue,
                tree => tree.during(|| format!("clone the container's group of the cgroup hierarchy {name:?}"))?,
            };
            let name = name.to_str().unwrap_or_default();
            trees.push((name.strip_prefix("name=").unwrap_or(name).to_owned(), tree));
        }
        Ok(trees)
    }
}

/// Detached mounts for a container's `/sys/fs/cgroup`.
#[derive(Debug)]
pub(crate) enum CgroupMounts {
    /// Its group of each hierarchy, by the hierarchy's name.
    Hierarchies(Vec<(String, OwnedFd)>),
    /// A clone of the host's.
    Host(OwnedFd),
}

impl CgroupMounts {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (trees, host) = match self {
            Self::Hierarchies(trees) => (trees.as_slice(), None),
            Self::Host(host) => (&[][..], Some(host)),
        };
        trees.iter().map(|(_, tree)| tree).chain(host).map(AsFd::as_fd)
    }

    fn duplicate(&self) -> Result<Self, Error> {
        let copy = |fd: &OwnedFd| fd.try_clone().during(|| "duplicate the descriptor of a cgroup hierarchy");
        Ok(match self {
            Self::Hierarchies(trees) => {
                let copies = trees.iter().map(|(name, tree)| Ok((name.clone(), copy(tree)?)));
                Self::Hierarchies(copies.collect::<Result<_, Error>>()?)
            }
            Self::Host(host) => Self::Host(copy(host)?),
        })
    }
}

/// Clones the host's `/sys/fs/cgroup` read-only, for a caller that may not mount the hierarchies.
fn clone_hosts() -> Result<CgroupMounts, Error> {
    let tree = mount_tree::clone_host_mount(c"/sys/fs/cgroup", true)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, true).during(|| "make the host's /sys/fs/cgroup read-only")?;
    Ok(CgroupMounts::Host(tree))
}

/// Hierarchies to attach on the tmpfs once that is attached: before Linux 6.15, nothing can be mounted on a detached
/// mount.
pub(crate) struct V1Mount {
    trees: Vec<(String, OwnedFd)>,
    attributes: MountAttributes,
}

/// Makes the mount for `/sys/fs/cgroup`: a new tmpfs and the hierarchies to attach on it, or a clone of the host's.
pub(crate) fn make_v1(
    trees: &V1Hierarchies,
    options: &Options,
    preopened: Option<&CgroupMounts>,
) -> Result<(OwnedFd, Option<V1Mount>), Error> {
    let mounts = match preopened {
        Some(mounts) => mounts.duplicate()?,
        None => trees.open(true)?,
    };
    let trees = match mounts {
        CgroupMounts::Host(tree) => {
            options.attributes.apply(&tree, true).during(|| "set the attributes of the cgroup hierarchies")?;
            return Ok((tree, None));
        }
        CgroupMounts::Hierarchies(trees) => trees,
    };
    let tmpfs = FileSystem { kind: c"tmpfs".into(), source: Some(c"cgroup".into()) };
    let mut root_options = Options { data: vec![("mode".to_owned(), Some("755".to_owned()))], ..Options::default() };
    root_options.attributes.set = options.attributes.set - MountAttrFlags::MOUNT_ATTR_RDONLY;
    let root = tmpfs.make(&root_options)?;
    Ok((root, Some(V1Mount { trees, attributes: options.attributes })))
}

impl V1Mount {
    /// Attaches the hierarchies on their tmpfs, with a symlink per controller where several share a hierarchy.
    pub(crate) fn attach(&self, tmpfs: BorrowedFd<'_>) -> Result<(), Error> {
        for (name, tree) in &self.trees {
            mkdirat(tmpfs, name.as_str(), Mode::from_raw_mode(0o755))
                .during(|| format!("create the directory of cgroup hierarchy {name}"))?;
            move_mount(tree, c"", tmpfs, name.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .during(|| format!("attach the cgroup hierarchy {name}"))?;
            for controller in name.split(',').filter(|controller| controller != name) {
                symlinkat(name.as_str(), tmpfs, controller)
                    .during(|| format!("create the symlink of controller {controller}"))?;
            }
        }
        self.attributes.apply(tmpfs, true).during(|| "set the attributes of the cgroup hierarchies")
    }
}
