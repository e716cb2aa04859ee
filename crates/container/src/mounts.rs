//! `mounts`, in two strokes: first every mount is *made*, detached, while the host's paths and procfs are still there;
//! then the container's root is entered ([`crate::rootfs::enter`]); then each is *attached* at its destination, which
//! can only be inside ([`made`]).

mod bind;
pub(crate) mod cgroup;
mod copy_up;
pub(crate) mod filesystem;
mod idmap;
mod long_options;
mod made;
pub(crate) mod option;

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{PROC_SUPER_MAGIC, statfs},
    io::Errno,
    mount::{MountAttrFlags, MoveMountFlags, UnmountFlags, move_mount, unmount},
};

pub(crate) use self::made::{Detached, Made, attach_all};
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
    gathered::Gathered,
    text::{c_string, inner_path},
    user_namespace::UserNamespace,
};

/// One entry of `mounts`.
#[derive(Debug)]
struct Mount {
    destination: CString,
    kind: Kind,
    options: Options,
    idmap: Option<IdMap>,
    /// Made read-only when all that belongs into it is there ([`Made::finish`]).
    read_only_late: bool,
}

#[derive(Debug)]
enum Kind {
    /// Only the attributes of what is mounted there already.
    Remount,
    Bind(Source),
    New(FileSystem),
    /// A file system of directories or a device of the host, and its mount once it is opened in the caller.
    OfHost(FileSystem, Option<OwnedFd>),
    CgroupV1(cgroup::V1Trees),
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<Mount>);

/// Where file systems are mounted for a moment to clone parts of them: in the child's private mount namespace, below
/// the old root, which is dropped before the container's root is shown to anybody. Its procfs is held by descriptor.
pub(crate) const SCRATCH: &CStr = c"/proc";

/// File systems whose files take `linux.mountLabel`.
const LABELLED: [&str; 2] = ["tmpfs", "devpts"];

/// What the parser knows beside the entry.
pub(crate) struct Surroundings<'a> {
    pub(crate) group: &'a ::cgroup::GroupPath,
    /// `linux.mountLabel`
    pub(crate) label: Option<&'a str>,
    /// Whether it has a user namespace of its own.
    pub(crate) other_users: bool,
}

impl Mounts {
    pub(crate) fn parse(
        entries: &[oci::Mount],
        mut given: BTreeMap<u32, OwnedFd>,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Error> {
        let mut mounts = Vec::with_capacity(entries.len());
        for (index, entry) in (0..).zip(entries) {
            mounts.push(Mount::parse(entry, given.remove(&index), surroundings)?);
        }
        match given.into_keys().next() {
            Some(index) => {
                Err(Error::invalid(format!("mounts: a descriptor was given for entry {index}, which is not there")))
            }
            None => Ok(Self(mounts)),
        }
    }

    /// Descriptors the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().filter_map(|mount| match &mount.kind {
            Kind::Bind(source) => source.descriptor(),
            Kind::OfHost(_, opened) => opened.as_ref().map(AsFd::as_fd),
            _ => None,
        })
    }

    /// In the caller: what is id-mapped or a file system of the host, for which the rights are the caller's; and `all`,
    /// when the child will not see its paths. So a file system of the host's directories or devices is not the
    /// container's user namespace's, as the root is not: only thus has an overlay its `trusted.overlay` attributes, and
    /// a device a mount at all, whatever devices the container's cgroup denies it.
    pub(crate) fn open_sources(&mut self, all: bool, slaves: bool, user: &UserNamespace) -> Result<(), Error> {
        let mut maps = Maps::new(user);
        for mount in &mut self.0 {
            let opened = match (&mut mount.kind, &mount.idmap) {
                (Kind::Bind(source), Some(map)) => source.open(slaves).and_then(|()| source.map_ids(map, &mut maps)),
                (Kind::Bind(source), None) if all => source.open(slaves),
                (Kind::OfHost(fs, opened), _) => fs.make(&mount.options).map(|tree| *opened = Some(tree)),
                _ => Ok(()),
            };
            opened.map_err(|error| error.within(format!("mount on {:?}", mount.destination)))?;
        }
        Ok(())
    }

    /// In the caller, which knows what the host shows on `/sys/fs/cgroup`: where that is the v2 tree a container sees
    /// the v2 tree, whatever v1 trees there are elsewhere (`net_cls` of a VPN, say).
    pub(crate) fn settle_cgroups(&mut self, unified: bool) {
        for mount in self.0.iter_mut().filter(|_| unified) {
            if matches!(mount.kind, Kind::CgroupV1(_)) {
                mount.kind = Kind::New(FileSystem { kind: c"cgroup2".into(), source: Some(c"cgroup".into()) });
            }
        }
    }

    /// Whether any is of directories or a device of the host, and was not handed over.
    pub(crate) fn are_of_host(&self) -> bool {
        self.0.iter().any(|mount| matches!(mount.kind, Kind::OfHost(..)))
    }

    /// Whether any must be made in the caller, where that has the rights to.
    pub(crate) fn need_caller(&self, rights: bool) -> bool {
        let of_host = |mount: &Mount| rights && matches!(mount.kind, Kind::OfHost(..));
        self.0.iter().any(|mount| mount.idmap.is_some() || of_host(mount))
    }

    /// Whether the mounts bring `/dev` from outside: then no device is made in it.
    pub(crate) fn bind_dev(&self) -> bool {
        self.0.iter().any(|mount| mount.destination.as_c_str() == c"/dev" && matches!(mount.kind, Kind::Bind(_)))
    }

    /// Whether something is mounted on exactly this path.
    pub(crate) fn has(&self, path: &CStr) -> bool {
        self.0.iter().any(|mount| mount.destination.as_c_str() == path)
    }

    /// What init could not have of v1 cgroup trees, for each mount of them.
    pub(crate) fn gather_groups(&self, whole: bool) -> Result<Vec<(usize, cgroup::Groups)>, Error> {
        let trees = self.0.iter().enumerate().filter_map(|(index, mount)| match &mount.kind {
            Kind::CgroupV1(trees) => Some((index, trees)),
            _ => None,
        });
        trees.map(|(index, trees)| Ok((index, trees.gather(whole)?))).collect()
    }

    /// Makes every mount, detached; the v1 cgroup trees last, they cover `/proc` of the old root.
    pub(crate) fn make(&self, gathered: Option<&Gathered>) -> Result<Vec<Made<'_>>, Error> {
        let mut made = Vec::with_capacity(self.0.len());
        for late in [false, true] {
            for (index, mount) in self.0.iter().enumerate() {
                if matches!(mount.kind, Kind::CgroupV1(_)) == late {
                    made.push((index, mount.make(gathered.and_then(|gathered| gathered.groups(index)))?));
                }
            }
        }
        made.sort_by_key(|(index, _)| *index);
        Ok(made.into_iter().map(|(_, made)| made).collect())
    }
}

impl Mount {
    fn parse(entry: &oci::Mount, given: Option<OwnedFd>, surroundings: &Surroundings<'_>) -> Result<Self, Error> {
        // Relative ones are deprecated since 1.0 of the specification, and still are written.
        let destination = match entry.destination.strip_prefix('/') {
            None if !entry.destination.is_empty() => inner_path("mounts", &format!("/{}", entry.destination))?,
            _ => inner_path("mounts", &entry.destination)?,
        };
        if destination.as_c_str() == c"/" {
            return Err(Error::invalid("mounts: a destination is \"/\"; give the root as root.path"));
        }
        let kind = entry.kind.as_deref().unwrap_or("");
        let says_bind = entry.options.iter().any(|word| word == "bind" || word == "rbind");
        let bind = given.is_some() || says_bind || kind == "bind" || kind == "none" || kind.is_empty();
        let known = if bind { Some(&[][..]) } else { filesystem::known_options(kind) };
        let mut options = Options::parse(&entry.destination, &entry.options, known)?;
        if let Some(label) = surroundings.label.filter(|label| !label.is_empty())
            && LABELLED.contains(&kind)
            && !bind
        {
            options.data.push(("context".to_owned(), Some(label.to_owned())));
        }
        let v1 = if kind == "cgroup" && !bind { cgroup::V1Trees::find(surroundings.group)? } else { None };
        let idmap = IdMap::parse(entry, options.idmap, bind, surroundings.other_users)?;
        let kind = if options.remount {
            Kind::Remount
        } else if bind {
            Kind::Bind(parse_source(entry, given, options.bind == Some(true), surroundings.other_users)?)
        } else if let Some(trees) = v1 {
            Kind::CgroupV1(trees)
        } else {
            options.nothing_below();
            let kind = if kind == "cgroup" { "cgroup2" } else { kind };
            let source = entry.source.as_deref().filter(|source| !source.is_empty());
            let fs = FileSystem {
                kind: c_string("mounts: type", kind)?,
                source: source.map(|source| c_string("mounts: source", source)).transpose()?,
            };
            if fs.is_of_host(&options) { Kind::OfHost(fs, None) } else { Kind::New(fs) }
        };
        let tmpfs = matches!(&kind, Kind::New(fs) if fs.kind.as_c_str() == c"tmpfs");
        if options.copy_up && !tmpfs {
            return Err(Error::invalid(format!("mount {}: tmpcopyup is for tmpfs", entry.destination)));
        }
        let read_only = options.own.set.contains(MountAttrFlags::MOUNT_ATTR_RDONLY);
        let fixed = matches!(kind, Kind::Remount | Kind::CgroupV1(_));
        let filled = tmpfs || destination.as_c_str() == c"/dev" && !fixed;
        let read_only_late = read_only && filled;
        options.own.set.set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only && !filled);
        Ok(Self { destination, kind, options, idmap, read_only_late })
    }

    fn make(&self, groups: Option<&cgroup::Groups>) -> Result<Made<'_>, Error> {
        let made = match &self.kind {
            Kind::Remount => Ok((None, Shape::Directory, None)),
            Kind::Bind(source) => source.make(&self.options).map(|(tree, shape)| (Some(tree), shape, None)),
            Kind::OfHost(_, Some(opened)) => Ok((Some(Detached::Opened(opened.as_fd())), Shape::Directory, None)),
            Kind::New(fs) | Kind::OfHost(fs, None) => {
                fs.make(&self.options).map(|tree| (Some(Detached::Made(tree)), Shape::Directory, None))
            }
            Kind::CgroupV1(trees) => cgroup::make_v1(trees, &self.options, groups)
                .map(|(root, v1)| (Some(Detached::Made(root)), Shape::Directory, v1)),
        };
        let (tree, shape, v1) = made.map_err(|error| error.within(format!("mount on {:?}", self.destination)))?;
        Ok(Made { mount: self, tree, shape, v1 })
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

/// Takes the v1 cgroup trees off `/proc` again, where they were mounted to be cloned.
pub(crate) fn uncover_proc() -> Result<(), Error> {
    while statfs(c"/proc").during(|| "ask what /proc is")?.f_type != PROC_SUPER_MAGIC {
        unmount(c"/proc", UnmountFlags::DETACH).during(|| "take a cgroup tree off /proc")?;
    }
    Ok(())
}

/// Attaches a detached mount upon what `destination` refers to.
pub(crate) fn attach(tree: BorrowedFd<'_>, destination: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", destination, c"", flags)
}
