//! `mounts`, in two strokes: first every mount is *made*, detached, while the host's paths and procfs are still there; then
//! the container's root is entered ([`crate::rootfs::enter`]); then each is *attached* at its destination, which can only be
//! inside.

mod bind;
pub(crate) mod cgroup;
mod copy_up;
pub(crate) mod filesystem;
mod idmap;
pub(crate) mod option;

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, mkdirat, openat2, statfs},
    io::Errno,
    mount::{MoveMountFlags, UnmountFlags, move_mount, unmount},
};

use self::{
    bind::Source,
    cgroup::V1Mount,
    filesystem::FileSystem,
    idmap::{IdMap, Maps},
    option::Options,
};
use crate::{
    Error, descriptors,
    destination::{self, Shape},
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
}

#[derive(Debug)]
enum Kind {
    /// Only the attributes of what is mounted there already.
    Remount,
    Bind(Source),
    New(FileSystem),
    CgroupV1(cgroup::V1Trees),
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<Mount>);

/// Where file systems are mounted for a moment to clone parts of them: in the child's private mount namespace, below the old
/// root, which is dropped before the container's root is shown to anybody. Its procfs is held by descriptor.
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
            _ => None,
        })
    }

    /// In the caller: what is id-mapped, for which the rights are the caller's; and `all`, when the child will not see its
    /// paths.
    pub(crate) fn open_sources(&mut self, all: bool, slaves: bool, user: &UserNamespace) -> Result<(), Error> {
        let mut maps = Maps::new(user);
        for mount in &mut self.0 {
            let Kind::Bind(source) = &mut mount.kind else { continue };
            let opened = match &mount.idmap {
                Some(map) => source.open(slaves).and_then(|()| source.map_ids(map, &mut maps)),
                None if all => source.open(slaves),
                None => Ok(()),
            };
            opened.map_err(|error| error.within(format!("mount on {:?}", mount.destination)))?;
        }
        Ok(())
    }

    /// Whether any is id-mapped.
    pub(crate) fn map_ids(&self) -> bool {
        self.0.iter().any(|mount| mount.idmap.is_some())
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
            Kind::Bind(parse_source(entry, given, options.bind == Some(true))?)
        } else if let Some(trees) = v1 {
            Kind::CgroupV1(trees)
        } else {
            let kind = if kind == "cgroup" { "cgroup2" } else { kind };
            let source = entry.source.as_deref().filter(|source| !source.is_empty());
            Kind::New(FileSystem {
                kind: c_string("mounts: type", kind)?,
                source: source.map(|source| c_string("mounts: source", source)).transpose()?,
            })
        };
        if options.copy_up && !matches!(&kind, Kind::New(fs) if fs.kind.as_c_str() == c"tmpfs") {
            return Err(Error::invalid(format!("mount {}: tmpcopyup is for tmpfs", entry.destination)));
        }
        Ok(Self { destination, kind, options, idmap })
    }

    fn make(&self, groups: Option<&cgroup::Groups>) -> Result<Made<'_>, Error> {
        let made = match &self.kind {
            Kind::Remount => Ok((None, Shape::Folder, None)),
            Kind::Bind(source) => source.make(&self.options).map(|(tree, shape)| (Some(tree), shape, None)),
            // A read-only tmpfs is filled first.
            Kind::New(fs) if self.options.copy_up => {
                let mut options = self.options.clone();
                options.own.set -= rustix::mount::MountAttrFlags::MOUNT_ATTR_RDONLY;
                fs.make(&options).map(|tree| (Some(tree), Shape::Folder, None))
            }
            Kind::New(fs) => fs.make(&self.options).map(|tree| (Some(tree), Shape::Folder, None)),
            Kind::CgroupV1(trees) => {
                cgroup::make_v1(trees, &self.options, groups).map(|(root, v1)| (Some(root), Shape::Folder, v1))
            }
        };
        let (tree, shape, v1) = made.map_err(|error| error.within(format!("mount on {:?}", self.destination)))?;
        Ok(Made { mount: self, tree, shape, v1 })
    }
}

fn parse_source(entry: &oci::Mount, given: Option<OwnedFd>, recursive: bool) -> Result<Source, Error> {
    if let Some(fd) = given {
        return Ok(Source::Given(fd));
    }
    match entry.source.as_deref() {
        Some(path) if path.starts_with('/') => Ok(Source::Path { path: c_string("mounts: source", path)?, recursive }),
        Some(path) => Err(Error::invalid(format!("mount {}: bind source {path:?} is not absolute", entry.destination))),
        None => Err(Error::invalid(format!("mount {}: a bind mount needs a source", entry.destination))),
    }
}

/// A mount that is not attached yet.
pub(crate) struct Made<'a> {
    mount: &'a Mount,
    /// None: what is there is only changed.
    tree: Option<OwnedFd>,
    shape: Shape,
    v1: Option<V1Mount>,
}

impl Made<'_> {
    /// Attaches it at its destination inside `root`.
    pub(crate) fn attach(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        self.try_attach(root).map_err(|error| error.within(format!("mount on {:?}", self.mount.destination)))
    }

    fn try_attach(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(tree) = &self.tree else { return self.remount(root) };
        let destination = self.destination(root)?;
        if self.mount.options.copy_up {
            self.copy_up(tree, destination.as_fd())?;
        }
        attach(tree.as_fd(), destination.as_fd()).during(|| self.mismatch(destination.as_fd()))?;
        descriptors::leave(destination);
        if let Some(v1) = &self.v1 {
            v1.attach(tree)?;
        }
        // Not before: a shared tree would carry the attaching to its peers.
        match self.mount.options.propagation {
            Some(propagation) => propagation.apply(tree).during(|| "set the propagation"),
            None => Ok(()),
        }
    }

    fn destination(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let path = self.mount.destination.as_c_str();
        match &self.mount.kind {
            Kind::New(fs) if [c"proc", c"sysfs"].contains(&fs.kind.as_c_str()) => plain_folder(root, path),
            _ => destination::find_or_make(root, path, self.shape),
        }
    }

    /// New attributes for what an earlier entry, or the root, has there.
    fn remount(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let options = &self.mount.options;
        let found = destination::find(root, &self.mount.destination).during(|| "open what is to be remounted")?;
        for (attributes, recursive) in [(options.own, false), (options.recursive, true)] {
            if !attributes.is_empty() {
                bind::apply(attributes, &found, recursive).during(|| "remount (is something mounted there?)")?;
            }
        }
        let propagated = options.propagation.map_or(Ok(()), |propagation| propagation.apply(&found));
        propagated.during(|| "set the propagation")?;
        descriptors::leave(found);
        Ok(())
    }

    fn copy_up(&self, tree: &OwnedFd, destination: BorrowedFd<'_>) -> Result<(), Error> {
        copy_up::copy_tree(destination, tree.as_fd()).during(|| "copy what the image has there (tmpcopyup)")?;
        let own = self.mount.options.own;
        if own.is_empty() { Ok(()) } else { own.apply(tree, false).during(|| "set the attributes of the tmpfs") }
    }

    fn mismatch(&self, destination: BorrowedFd<'_>) -> String {
        let folder = fstat(destination).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        match (self.shape, folder) {
            (Shape::Folder, false) => "attach a folder where the container has a file".to_owned(),
            (Shape::File, true) => "attach a file where the container has a folder".to_owned(),
            _ => "attach".to_owned(),
        }
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

/// The place of proc and sysfs: a folder reached without any symlink, or an image could move them away and show its own
/// files in their place, for others to trust (CVE-2019-19921).
fn plain_folder(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT) => {
            let relative = &path.to_bytes_with_nul()[1..];
            if let Ok(name) = CStr::from_bytes_with_nul(relative)
                && !name.to_bytes().contains(&b'/')
            {
                let made = mkdirat(root, name, Mode::from_raw_mode(0o755));
                made.during(|| format!("create {path:?} in the container"))?;
            } else {
                destination::find_or_make(root, path, Shape::Folder)?;
            }
            openat2(root, path, flags, Mode::empty(), resolve)
        }
        result => result,
    }
    .during(|| format!("open {path:?} in the container, which must be a folder and no symlink"))
}
