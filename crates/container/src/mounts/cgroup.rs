//! `/sys/fs/cgroup` in a container: the v2 tree, or on v1 and hybrid hosts a tmpfs with the container's own group of
//! every v1 tree, as a container would see them on a host.

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
    gathered,
    mounts::{SCRATCH, filesystem::FileSystem, option::Options},
};

/// The v1 trees of this host and where the container is in them.
#[derive(Debug)]
pub(crate) struct V1Trees {
    /// As in `/proc/self/cgroup`: `cpu,cpuacct`, `name=systemd`.
    names: Vec<CString>,
    /// The container's group below every tree's root, from the scratch mount point: `/proc/pinion/x`.
    group: CString,
}

impl V1Trees {
    /// Asks the kernel which v1 trees there are; `None` where the v2 tree has the controllers.
    pub(crate) fn find(group: &cgroup::GroupPath) -> Result<Option<Self>, Error> {
        let text = syscall::proc_file::read("/proc/self/cgroup").during(|| "read /proc/self/cgroup")?;
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split(':').nth(1)).filter(|name| !name.is_empty()).collect();
        if !names.iter().any(|name| !name.starts_with("name=")) {
            return Ok(None);
        }
        let names =
            names.iter().map(|name| crate::text::c_string("/proc/self/cgroup", name)).collect::<Result<_, _>>()?;
        let group = crate::text::c_string("linux.cgroupsPath", &format!("/proc{}", group.as_str()))?;
        Ok(Some(Self { names, group }))
    }

    /// The container's group of every tree, detached; where `whole` trees may not be mounted, what the host shows.
    pub(crate) fn gather(&self, whole: bool) -> Result<Groups, Error> {
        if whole { Ok(Groups::Trees(self.clone_groups()?)) } else { hosts() }
    }

    fn clone_groups(&self) -> Result<Vec<(String, OwnedFd)>, Error> {
        mount_change(SCRATCH, MountPropagationFlags::PRIVATE).during(|| "make /proc private")?;
        let mut trees = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(c"cgroup", SCRATCH, c"cgroup", flags, Some(name.as_c_str()))
                .during(|| format!("mount the cgroup tree {name:?}"))?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = match open_tree(CWD, self.group.as_c_str(), flags) {
                // A tree that the host has nowhere mounted: nobody made a group in it.
                Err(Errno::NOENT) => continue,
                tree => tree.during(|| format!("clone the container's group of the cgroup tree {name:?}"))?,
            };
            let name = name.to_str().unwrap_or_default();
            trees.push((name.strip_prefix("name=").unwrap_or(name).to_owned(), tree));
        }
        Ok(trees)
    }
}

/// What a container is to see on `/sys/fs/cgroup`.
#[derive(Debug)]
pub(crate) enum Groups {
    /// Its group of each tree, by the tree's name.
    Trees(Vec<(String, OwnedFd)>),
    /// What the host has there.
    Host(OwnedFd),
}

impl Groups {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (trees, host) = match self {
            Self::Trees(trees) => (trees.as_slice(), None),
            Self::Host(host) => (&[][..], Some(host)),
        };
        trees.iter().map(|(_, tree)| tree).chain(host).map(AsFd::as_fd)
    }

    fn duplicate(&self) -> Result<Self, Error> {
        let copy = |fd: &OwnedFd| fd.try_clone().during(|| "duplicate a cgroup tree");
        Ok(match self {
            Self::Trees(trees) => {
                let copies = trees.iter().map(|(name, tree)| Ok((name.clone(), copy(tree)?)));
                Self::Trees(copies.collect::<Result<_, Error>>()?)
            }
            Self::Host(host) => Self::Host(copy(host)?),
        })
    }
}

/// What the host shows on `/sys/fs/cgroup`, for nobody to write: a caller without rights over the trees has no other.
pub(crate) fn hosts() -> Result<Groups, Error> {
    let tree = gathered::clone(c"/sys/fs/cgroup", true)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, true).during(|| "make the host's /sys/fs/cgroup read-only")?;
    Ok(Groups::Host(tree))
}

/// The trees, ready to be put on the tmpfs when that is attached (the kernel refuses it before, until Linux 6.15).
pub(crate) struct V1Mount {
    trees: Vec<(String, OwnedFd)>,
    attributes: MountAttributes,
}

/// A new tmpfs, and what goes onto it; or what the host has.
pub(crate) fn make_v1(
    trees: &V1Trees,
    options: &Options,
    gathered: Option<&Groups>,
) -> Result<(OwnedFd, Option<V1Mount>), Error> {
    let groups = match gathered {
        Some(groups) => groups.duplicate()?,
        None => trees.gather(true)?,
    };
    let trees = match groups {
        Groups::Host(tree) => {
            options.own.apply(&tree, true).during(|| "set the attributes of the cgroup trees")?;
            return Ok((tree, None));
        }
        Groups::Trees(trees) => trees,
    };
    let tmpfs = FileSystem { kind: c"tmpfs".into(), source: Some(c"cgroup".into()) };
    let mut own = Options { data: vec![("mode".to_owned(), Some("755".to_owned()))], ..Options::default() };
    own.own.set = options.own.set - MountAttrFlags::MOUNT_ATTR_RDONLY;
    let root = tmpfs.make(&own)?;
    Ok((root, Some(V1Mount { trees, attributes: options.own })))
}

impl V1Mount {
    /// Puts the trees onto their tmpfs, with a symlink per controller where several share a tree.
    pub(crate) fn attach(&self, tmpfs: BorrowedFd<'_>) -> Result<(), Error> {
        for (name, tree) in &self.trees {
            mkdirat(tmpfs, name.as_str(), Mode::from_raw_mode(0o755))
                .during(|| format!("create the directory of cgroup tree {name}"))?;
            move_mount(tree, c"", tmpfs, name.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .during(|| format!("attach the cgroup tree {name}"))?;
            for controller in name.split(',').filter(|controller| controller != name) {
                symlinkat(name.as_str(), tmpfs, controller)
                    .during(|| format!("create the symlink of controller {controller}"))?;
            }
        }
        self.attributes.apply(tmpfs, true).during(|| "set the attributes of the cgroup trees")
    }
}
