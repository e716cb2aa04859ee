//! `/dev`: the devices and symlinks every container has, and `linux.devices`.

use std::ffi::{CStr, CString};

use oci::DeviceKind;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chmodat, chownat, fstat, makedev, mknodat,
        openat2, statat, symlinkat,
    },
    io::Errno,
    mount::{MountFlags, OpenTreeFlags, mount, open_tree},
};

use crate::{
    Error, descriptors,
    destination::{self, Shape},
    error::During,
    gathered,
    mounts::{SCRATCH, attach},
    text::inner_path,
};

/// Major and minor number of `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Name, major, minor of what the specification asks for ("Default Devices").
const DEFAULT: [(&CStr, u32, u32); 6] = [
    (c"null", NULL.0, NULL.1),
    (c"zero", 1, 5),
    (c"full", 1, 7),
    (c"random", 1, 8),
    (c"urandom", 1, 9),
    (c"tty", 5, 0),
];

/// Name and target of symlinks ("Dev symbolic links", and what every engine has).
const SYMLINKS: [(&CStr, &CStr); 5] = [
    (c"fd", c"/proc/self/fd"),
    (c"stdin", c"/proc/self/fd/0"),
    (c"stdout", c"/proc/self/fd/1"),
    (c"stderr", c"/proc/self/fd/2"),
    (c"ptmx", c"pts/ptmx"),
];

/// A device of the spec.
#[derive(Clone, Debug)]
struct Device {
    directory: CString,
    name: CString,
    kind: FileType,
    number: u64,
    mode: Mode,
    owner: Option<(Uid, Gid)>,
}

/// Devices to make.
#[derive(Debug)]
pub(crate) struct Devices {
    spec: Vec<Device>,
    /// `/dev` is the host's: nothing is made in it.
    none: bool,
}

impl Devices {
    pub(crate) fn parse(entries: &[oci::Device], bind_dev: bool) -> Result<Self, Error> {
        let mut spec: Vec<Device> = Vec::with_capacity(entries.len());
        for entry in entries {
            let device = Device::parse(entry)?;
            // Engines list every device of the host for a privileged container; but its ptmx is always that of its own
            // devpts. Of two with the same path the first is made, as with runc and crun.
            if device.path().as_c_str() != c"/dev/ptmx" && !spec.iter().any(|other| other.is_at(&device)) {
                spec.push(device);
            }
        }
        Ok(Self { spec, none: bind_dev })
    }

    /// In the child, inside the root, with an empty umask. `gathered`: what to bind in place of making nodes.
    pub(crate) fn make(&self, root: BorrowedFd<'_>, gathered: Option<&[OwnedFd]>) -> Result<(), Error> {
        if self.none {
            return Ok(());
        }
        let dev = destination::find_or_make(root, c"/dev", Shape::Directory)?;
        if let Some(nodes) = gathered {
            bind_all(root, self.all(), nodes)?;
            make_symlinks(dev.as_fd())?;
            descriptors::leave(dev);
            return Ok(());
        }
        for (name, major, minor) in DEFAULT {
            if self.spec.iter().any(|device| device.directory.as_c_str() == c"/dev" && device.name.as_c_str() == name) {
                continue;
            }
            let mode = Mode::from_raw_mode(0o666);
            make_node(dev.as_fd(), name, (FileType::CharacterDevice, mode, makedev(major, minor)))
                .during(|| format!("create device /dev/{}", name.to_string_lossy()))?;
        }
        // Before the symlinks, whose places the spec may have given to devices.
        self.spec.iter().try_for_each(|device| device.make(root, dev.as_fd()))?;
        make_symlinks(dev.as_fd())?;
        descriptors::leave(dev);
        Ok(())
    }
}

impl Devices {
    /// All, the default ones first, as the spec has them.
    fn all(&self) -> Vec<Device> {
        let default = DEFAULT.iter().filter(|(name, ..)| {
            !self.spec.iter().any(|device| device.directory.as_c_str() == c"/dev" && device.name.as_c_str() == *name)
        });
        let default = default.map(|(name, major, minor)| Device {
            directory: c"/dev".into(),
            name: (*name).into(),
            kind: FileType::CharacterDevice,
            number: makedev(*major, *minor),
            mode: Mode::from_raw_mode(0o666),
            owner: None,
        });
        default.chain(self.spec.iter().cloned()).collect()
    }

    /// Root of the machine, before a user namespace is entered: nodes on a tmpfs that nobody sees, to be bound into the
    /// container one by one.
    pub(crate) fn make_apart(&self, owner: impl Fn(Uid, Gid) -> (Uid, Gid)) -> Result<Vec<OwnedFd>, Error> {
        if self.none {
            return Ok(Vec::new());
        }
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(c"tmpfs", SCRATCH, c"tmpfs", flags, None).during(|| "mount a tmpfs to make devices on")?;
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat2(CWD, SCRATCH, open, Mode::empty(), ResolveFlags::empty())
            .during(|| "open the tmpfs to make devices on")?;
        let mut trees = Vec::new();
        for (number, device) in self.all().into_iter().enumerate() {
            let name = crate::text::c_string("linux.devices", &number.to_string())?;
            let (uid, gid) = device.owner.unwrap_or((Uid::ROOT, Gid::ROOT));
            let node = Device { name: name.clone(), owner: Some(owner(uid, gid)), ..device };
            node.make_in(directory.as_fd())?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            trees.push(open_tree(&directory, &name, flags).during(|| "clone a device for the container")?);
        }
        Ok(trees)
    }

    /// Who may not make nodes binds the host's.
    pub(crate) fn clone_hosts(&self) -> Result<Vec<OwnedFd>, Error> {
        if self.none {
            return Ok(Vec::new());
        }
        let clone = |device: &Device| {
            let path = device.path();
            gathered::clone(&path, false).map_err(|error| {
                error.within(format!("device {path:?}: without rights to make device nodes the host's must be bound"))
            })
        };
        self.all().iter().map(clone).collect()
    }
}

fn make_symlinks(dev: BorrowedFd<'_>) -> Result<(), Error> {
    for (name, target) in SYMLINKS {
        match symlinkat(target, dev, name) {
            Err(Errno::EXIST) => {}
            result => result.during(|| format!("create symlink /dev/{}", name.to_string_lossy()))?,
        }
    }
    Ok(())
}

fn bind_all(root: BorrowedFd<'_>, devices: Vec<Device>, nodes: &[OwnedFd]) -> Result<(), Error> {
    for (device, node) in devices.iter().zip(nodes) {
        let path = device.path();
        let place = destination::find_or_make(root, &path, Shape::File)?;
        attach(node.as_fd(), place.as_fd()).during(|| format!("bind the device {path:?}"))?;
        descriptors::leave(place);
    }
    Ok(())
}

impl Device {
    fn parse(entry: &oci::Device) -> Result<Self, Error> {
        let path = inner_path("linux.devices", &entry.path)?;
        let wrong = |what: &str| Error::invalid(format!("linux.devices: {}: {what}", entry.path));
        let text = path.to_str().map_err(|_| wrong("is no UTF-8"))?;
        let (directory, name) = text.rsplit_once('/').unwrap_or(("", text));
        if name.is_empty() {
            return Err(wrong("is a directory"));
        }
        let number = |n: i64| u32::try_from(n).map_err(|_| wrong("its major or minor number is out of range"));
        let kind = match entry.kind {
            DeviceKind::Char => FileType::CharacterDevice,
            DeviceKind::Block => FileType::BlockDevice,
            DeviceKind::Fifo => FileType::Fifo,
        };
        let owner = match (entry.uid.unwrap_or(0), entry.gid.unwrap_or(0)) {
            (0, 0) => None,
            (uid, gid) if uid == u32::MAX || gid == u32::MAX => return Err(wrong("its owner is no id")),
            (uid, gid) => Some((Uid::from_raw(uid), Gid::from_raw(gid))),
        };
        Ok(Self {
            directory: crate::text::c_string("linux.devices", if directory.is_empty() { "/" } else { directory })?,
            name: crate::text::c_string("linux.devices", name)?,
            kind,
            number: if kind == FileType::Fifo { 0 } else { makedev(number(entry.major)?, number(entry.minor)?) },
            mode: Mode::from_raw_mode(entry.file_mode.unwrap_or(0o666) & 0o7777),
            owner,
        })
    }

    fn make(&self, root: BorrowedFd<'_>, dev: BorrowedFd<'_>) -> Result<(), Error> {
        let other;
        let directory = if self.directory.as_c_str() == c"/dev" {
            dev
        } else {
            other = destination::find_or_make(root, &self.directory, Shape::Directory)?;
            other.as_fd()
        };
        self.make_in(directory)
    }

    fn is_at(&self, other: &Self) -> bool {
        self.directory == other.directory && self.name == other.name
    }

    fn path(&self) -> CString {
        let directory = self.directory.to_bytes();
        let directory = if directory == b"/" { &[][..] } else { directory };
        // Neither part has a NUL byte.
        CString::new([directory, b"/", self.name.to_bytes()].concat()).unwrap_or_default()
    }

    fn make_in(&self, directory: BorrowedFd<'_>) -> Result<(), Error> {
        let path = || format!("create device {}/{}", self.directory.to_string_lossy(), self.name.to_string_lossy());
        make_node(directory, &self.name, (self.kind, self.mode, self.number)).during(path)?;
        if let Some((uid, gid)) = self.owner {
            chownat(directory, self.name.as_c_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).during(path)?;
            // chown takes setuid and setgid bits away.
            chmodat(directory, self.name.as_c_str(), self.mode, AtFlags::empty()).during(path)?;
        }
        Ok(())
    }
}

/// mknod; a node that is there already must be the same one.
fn make_node(directory: BorrowedFd<'_>, name: &CStr, (kind, mode, number): (FileType, Mode, u64)) -> Result<(), Errno> {
    match mknodat(directory, name, kind, mode, number) {
        Err(Errno::EXIST) => {
            let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let same =
                FileType::from_raw_mode(found.st_mode) == kind && (kind == FileType::Fifo || found.st_rdev == number);
            if same { Ok(()) } else { Err(Errno::EXIST) }
        }
        result => result,
    }
}

/// Opens the container's `/dev/null` and checks that it is the null device.
pub(crate) fn open_null(root: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null =
        openat2(root, c"/dev/null", flags, Mode::empty(), resolve).during(|| "open the container's /dev/null")?;
    let found = fstat(&null).during(|| "ask what the container's /dev/null is")?;
    if FileType::from_raw_mode(found.st_mode) != FileType::CharacterDevice || found.st_rdev != makedev(NULL.0, NULL.1) {
        return Err(Error::system("check the container's /dev/null: it is not the null device 1:3", Errno::NODEV));
    }
    Ok(null)
}
