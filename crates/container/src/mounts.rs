//! `mounts`, in two steps. First every mount is *made* detached, while the host's paths and procfs are still visible.
//! Then the container's root is entered ([`crate::rootfs::enter`]), and each mount is *attached* at its destination,
//! which therefore can only be inside the root ([`detached`]).

mod bind;
pub(crate) mod cgroup;
mod copy_up;
mod detached;
pub(crate) mod filesystem;
mod idmap;
mod long_options;
pub(crate) mod option;

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{PROC_SUPER_MAGIC, statfs},
    mount::{MountAttrFlags, UnmountFlags, unmount},
};

pub(crate) use self::detached::{MountFd, PendingMount, attach_all};
use self::{
    bind::{Source, Tree},
    filesystem::FileSystem,
    idmap::{IdMap, Maps},
    option::Options,
};
use crate::{
    Error,
    destination::Shape,
    error::During,
    spec_string::{c_string, container_path},
    user_namespace::UserNamespace,
};

/// One entry of `mounts`.
#[derive(Debug)]
struct Mount {
    destination: CString,
    kind: Kind,
    options: Options,
    idmap: Option<IdMap>,
    /// Whether it is made read-only only after its contents are created ([`PendingMount::finish`]).
    read_only_late: bool,
}

#[derive(Debug)]
enum Kind {
    /// Changes the attributes of an existing mount.
    Remount,
    Bind(Source),
    New(FileSystem),
    /// A file system made of directories or a device of the host, and its mount once the caller has opened it.
    HostFileSystem(FileSystem, Option<OwnedFd>),
    CgroupV1(cgroup::V1Hierarchies),
}

/// The checked entries of `mounts`.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<Mount>);

/// File systems that are labelled with `linux.mountLabel`.
const LABELLED: [&str; 2] = ["tmpfs", "devpts"];

/// Context for the parser in addition to the entry.
pub(crate) struct MountContext<'a> {
    pub(crate) group: &'a ::cgroup::GroupPath,
    /// The value of `linux.mountLabel`.
    pub(crate) label: Option<&'a str>,
    /// Whether the container has another user namespace than the caller.
    pub(crate) user_namespace: bool,
}

impl Mounts {
    pub(crate) fn parse(
        entries: &[oci::Mount],
        mut given: BTreeMap<u32, OwnedFd>,
        context: &MountContext<'_>,
    ) -> Result<Self, Error> {
        let mut mounts = Vec::with_capacity(entries.len());
        for (index, entry) in (0..).zip(entries) {
            mounts.push(Mount::parse(entry, given.remove(&index), context)?);
        }
        match given.into_keys().next() {
            Some(index) => {
                Err(Error::invalid(format!("mounts: a descriptor was given for entry {index}, which does not exist")))
            }
            None => Ok(Self(mounts)),
        }
    }

    /// Returns the descriptors that the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().filter_map(|mount| match &mount.kind {
            Kind::Bind(source) => source.descriptor(),
            Kind::HostFileSystem(_, opened) => opened.as_ref().map(AsFd::as_fd),
            _ => None,
        })
    }

    /// Opens id-mapped mounts and file systems of the host, which need the caller's privileges; and `all` bind mounts,
    /// if the child will not see their paths. Runs in the caller. File systems of the host's directories or devices
    /// therefore do not belong to the container's user namespace, like its root. Otherwise an overlay could not use
    /// `trusted.overlay` attributes, and a device could not be mounted, or only if the container's cgroup allows it.
    pub(crate) fn open_sources(&mut self, all: bool, slaves: bool, user: &UserNamespace) -> Result<(), Error> {
        let mut maps = Maps::new(user);
        for mount in &mut self.0 {
            let opened = match (&mut mount.kind, &mount.idmap) {
                (Kind::Bind(source), Some(map)) => source.open(slaves).and_then(|()| source.map_ids(map, &mut maps)),
                (Kind::Bind(source), None) if all => source.open(slaves),
                (Kind::HostFileSystem(fs, opened), _) => fs.make(&mount.options).map(|tree| *opened = Some(tree)),
                _ => Ok(()),
            };
            opened.map_err(|error| error.within(format!("mount on {:?}", mount.destination)))?;
        }
        Ok(())
    }

    /// Replaces v1 cgroup mounts by the v2 hierarchy if the host has v2 on `/sys/fs/cgroup` (`unified`), even if v1
    /// hierarchies are mounted elsewhere (for example `net_cls` of a VPN). Runs in the caller.
    pub(crate) fn choose_cgroup_version(&mut self, unified: bool) {
        for mount in self.0.iter_mut().filter(|_| unified) {
            if matches!(mount.kind, Kind::CgroupV1(_)) {
                mount.kind = Kind::New(FileSystem { kind: c"cgroup2".into(), source: Some(c"cgroup".into()) });
            }
        }
    }

    /// Whether any mount is made of directories or a device of the host, and was not given as a descriptor.
    pub(crate) fn have_host_file_systems(&self) -> bool {
        self.0.iter().any(|mount| matches!(mount.kind, Kind::HostFileSystem(..)))
    }

    /// Whether any mount must be made in the caller; `privileged`: whether the caller may mount.
    pub(crate) fn need_caller(&self, privileged: bool) -> bool {
        let of_host = |mount: &Mount| privileged && matches!(mount.kind, Kind::HostFileSystem(..));
        self.0.iter().any(|mount| mount.idmap.is_some() || of_host(mount))
    }

    /// Whether `/dev` is a bind mount; then no devices are made in it.
    pub(crate) fn bind_dev(&self) -> bool {
        self.0.iter().any(|mount| mount.destination.as_c_str() == c"/dev" && matches!(mount.kind, Kind::Bind(_)))
    }

    /// Whether something is mounted on exactly this path.
    pub(crate) fn has(&self, path: &CStr) -> bool {
        self.0.iter().any(|mount| mount.destination.as_c_str() == path)
    }

    /// Opens v1 cgroup mounts that the init could not make, by index. `may_mount`: see [`cgroup::V1Hierarchies::open`].
    pub(crate) fn preopen_cgroups(&self, may_mount: bool) -> Result<Vec<(usize, cgroup::CgroupMounts)>, Error> {
        let entries = self.0.iter().enumerate().filter_map(|(index, mount)| match &mount.kind {
            Kind::CgroupV1(hierarchies) => Some((index, hierarchies)),
            _ => None,
        });
        entries.map(|(index, hierarchies)| Ok((index, hierarchies.open(may_mount)?))).collect()
    }

    /// Makes every mount detached; v1 cgroup hierarchies last, because they cover `/proc` of the old root. `preopened`:
    /// those that [`Mounts::preopen_cgroups`] opened.
    pub(crate) fn make(&self, preopened: &[(usize, cgroup::CgroupMounts)]) -> Result<Vec<PendingMount<'_>>, Error> {
        let mut mounts = Vec::with_capacity(self.0.len());
        for late in [false, true] {
            for (index, mount) in self.0.iter().enumerate() {
                if matches!(mount.kind, Kind::CgroupV1(_)) == late {
                    let cgroups = preopened.iter().find(|(entry, _)| *entry == index).map(|(_, mounts)| mounts);
                    mounts.push((index, mount.make(cgroups)?));
                }
            }
        }
        mounts.sort_by_key(|(index, _)| *index);
        Ok(mounts.into_iter().map(|(_, mount)| mount).collect())
    }
}

impl Mount {
    fn parse(entry: &oci::Mount, given: Option<OwnedFd>, context: &MountContext<'_>) -> Result<Self, Error> {
        // Relative destinations are deprecated since version 1.0 of the specification, but still in use.
        let destination = match entry.destination.strip_prefix('/') {
            None if !entry.destination.is_empty() => container_path("mounts", &format!("/{}", entry.destination))?,
            _ => container_path("mounts", &entry.destination)?,
        };
        if destination.as_c_str() == c"/" {
            return Err(Error::invalid("mounts: a destination is \"/\"; give the root as root.path"));
        }
        let kind = entry.kind.as_deref().unwrap_or("");
        let has_bind_option = entry.options.iter().any(|word| word == "bind" || word == "rbind");
        let bind = given.is_some() || has_bind_option || kind == "bind" || kind == "none" || kind.is_empty();
        let known = if bind { Some(&[][..]) } else { filesystem::known_options(kind) };
        let mut options = Options::parse(&entry.destination, &entry.options, known)?;
        if let Some(label) = context.label.filter(|label| !label.is_empty())
            && LABELLED.contains(&kind)
            && !bind
        {
            options.data.push(("context".to_owned(), Some(label.to_owned())));
        }
        let v1 = if kind == "cgroup" && !bind { cgroup::V1Hierarchies::find(context.group)? } else { None };
        let idmap = IdMap::parse(entry, options.idmap, bind, context.user_namespace)?;
        let kind = if options.remount {
            Kind::Remount
        } else if bind {
            Kind::Bind(parse_source(entry, given, options.bind == Some(true), context.user_namespace)?)
        } else if let Some(trees) = v1 {
            Kind::CgroupV1(trees)
        } else {
            options.merge_recursive();
            let kind = if kind == "cgroup" { "cgroup2" } else { kind };
            let source = entry.source.as_deref().filter(|source| !source.is_empty());
            let fs = FileSystem {
                kind: c_string("mounts: type", kind)?,
                source: source.map(|source| c_string("mounts: source", source)).transpose()?,
            };
            if fs.is_host_file_system(&options) { Kind::HostFileSystem(fs, None) } else { Kind::New(fs) }
        };
        let tmpfs = matches!(&kind, Kind::New(fs) if fs.kind.as_c_str() == c"tmpfs");
        if options.copy_up && !tmpfs {
            return Err(Error::invalid(format!("mount {}: tmpcopyup is for tmpfs", entry.destination)));
        }
        let read_only = options.attributes.set.contains(MountAttrFlags::MOUNT_ATTR_RDONLY);
        let keeps_file_system = matches!(kind, Kind::Remount | Kind::CgroupV1(_));
        let has_contents = tmpfs || destination.as_c_str() == c"/dev" && !keeps_file_system;
        let read_only_late = read_only && has_contents;
        options.attributes.set.set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only && !has_contents);
        Ok(Self { destination, kind, options, idmap, read_only_late })
    }

    fn make(&self, cgroups: Option<&cgroup::CgroupMounts>) -> Result<PendingMount<'_>, Error> {
        let result = match &self.kind {
            Kind::Remount => Ok((None, Shape::Directory, None)),
            Kind::Bind(source) => source.make(&self.options).map(|(tree, shape)| (Some(tree), shape, None)),
            Kind::HostFileSystem(_, Some(opened)) => {
                Ok((Some(MountFd::Borrowed(opened.as_fd())), Shape::Directory, None))
            }
            Kind::New(fs) | Kind::HostFileSystem(fs, None) => {
                fs.make(&self.options).map(|tree| (Some(MountFd::Owned(tree)), Shape::Directory, None))
            }
            Kind::CgroupV1(trees) => cgroup::make_v1(trees, &self.options, cgroups)
                .map(|(root, v1)| (Some(MountFd::Owned(root)), Shape::Directory, v1)),
        };
        let (tree, shape, v1) = result.map_err(|error| error.within(format!("mount on {:?}", self.destination)))?;
        Ok(PendingMount { mount: self, tree, shape, v1 })
    }
}

fn parse_source(entry: &oci::Mount, given: Option<OwnedFd>, recursive: bool, locked: bool) -> Result<Source, Error> {
    if let Some(fd) = given {
        return Ok(Source { tree: Tree::Given(fd), locked });
    }
    match entry.source.as_deref() {
        Some(path) if path.starts_with('/') => {
            Ok(Source { tree: Tree::Path { path: c_string("mounts: source", path)?, recursive }, locked })
        }
        Some(path) => Err(Error::invalid(format!("mount {}: bind source {path:?} is not absolute", entry.destination))),
        None => Err(Error::invalid(format!("mount {}: a bind mount needs a source", entry.destination))),
    }
}

/// Unmounts v1 cgroup hierarchies from `/proc`, where they were mounted to be cloned.
pub(crate) fn uncover_proc() -> Result<(), Error> {
    while statfs(c"/proc").during(|| "stat /proc")?.f_type != PROC_SUPER_MAGIC {
        unmount(c"/proc", UnmountFlags::DETACH).during(|| "unmount a cgroup hierarchy from /proc")?;
    }
    Ok(())
}
