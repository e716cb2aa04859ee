//! `/dev`: the devices and symlinks that every container has, and `linux.devices`.

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
    mount_tree::{self, SCRATCH, attach},
    spec_string::container_path,
};

/// Major and minor number of `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Name, major and minor number of the devices that the specification requires ("Default Devices").
const DEFAULT: [(&CStr, u32, u32); 6] = [
    (c"null", NULL.0, NULL.1),
    (c"zero", 1, 5),
    (c"full", 1, 7),
    (c"random", 1, 8),
    (c"urandom", 1, 9),
    (c"tty", 5, 0),
];

/// Name and target of the symlinks that the specification requires ("Dev symbolic links"), and of `ptmx`, which every
/// runtime makes.
const SYMLINKS: [(&CStr, &CStr); 5] = [
    (c"fd", c"/proc/self/fd"),
    (c"stdin", c"/proc/self/fd/0"),
    (c"stdout", c"/proc/self/fd/1"),
    (c"stderr", c"/proc/self/fd/2"),
    (c"ptmx", c"pts/ptmx"),
];

/// A device to make.
#[derive(Clone, Debug)]
struct Device {
    directory: CString,
    name: CString,
    kind: FileType,
    number: u64,
    mode: Mode,
    owner: Option<(Uid, Gid)>,
}

/// The devices of a container.
#[derive(Debug)]
pub(crate) struct Devices {
    spec: Vec<Device>,
    /// Whether `/dev` is a bind mount; then nothing is made in it.
    bind_dev: bool,
}

impl Devices {
    pub(crate) fn parse(entries: &[oci::Device], bind_dev: bool) -> Result<Self, Error> {
        let mut spec: Vec<Device> = Vec::with_capacity(entries.len());
        for entry in entries {
            let device = Device::parse(entry)?;
            // Engines list every device of the host for a privileged container, but ptmx always belongs to the
            // container's own devpts. Of several devices with the same path the first one is made, as in runc and crun.
            if device.path().as_c_str() != c"/dev/ptmx" && !spec.iter().any(|other| other.is_at(&device)) {
                spec.push(device);
            }
        }
        Ok(Self { spec, bind_dev })
    }

    /// Makes the devices and symlinks. Runs in the child, inside the root, with an empty umask. `preopened`: mounts of
    /// nodes to attach in place of making nodes.
    pub(crate) fn make(&self, root: BorrowedFd<'_>, preopened: Option<&[OwnedFd]>) -> Result<(), Error> {
        if self.bind_dev {
            return Ok(());
        }
        let dev = destination::find_or_make(root, c"/dev", Shape::Directory)?;
        if let Some(nodes) = preopened {
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
        // Before the symlinks: the spec may list devices with the names of symlinks.
        self.spec.iter().try_for_each(|device| device.make(root, dev.as_fd()))?;
        make_symlinks(dev.as_fd())?;
        descriptors::leave(dev);
        Ok(())
    }
}

impl Devices {
    /// Returns all devices, the default ones first; a device of the spec replaces a default one of the same name.
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

    /// Makes the nodes on a private tmpfs, and returns a detached mount of each to attach in the container. For root of
    /// the host, before it enters a user namespace.
    pub(crate) fn make_on_tmpfs(&self, owner: impl Fn(Uid, Gid) -> (Uid, Gid)) -> Result<Vec<OwnedFd>, Error> {
        if self.bind_dev {
            return Ok(Vec::new());
        }
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(c"tmpfs", SCRATCH, c"tmpfs", flags, None).during(|| "mount a tmpfs to make devices on")?;
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat2(CWD, SCRATCH, open, Mode::empty(), ResolveFlags::empty())
            .during(|| "open the tmpfs to make devices on")?;
        let mut trees = Vec::new();
        for (number, device) in self.all().into_iter().enumerate() {
            let name = crate::spec_string::c_string("linux.devices", &number.to_string())?;
            let (uid, gid) = device.owner.unwrap_or((Uid::ROOT, Gid::ROOT));
            let node = Device { name: name.clone(), owner: Some(owner(uid, gid)), ..device };
            node.make_in(directory.as_fd())?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            trees.push(open_tree(&directory, &name, flags).during(|| "clone a device for the container")?);
        }
        Ok(trees)
    }

    /// Clones mounts of the host's nodes, for a caller that may not make nodes.
    pub(crate) fn clone_from_host(&self) -> Result<Vec<OwnedFd>, Error> {
        if self.bind_dev {
            return Ok(Vec::new());
        }
        let clone = |device: &Device| {
            let path = device.path();
            mount_tree::clone_host_mount(&path, false).map_err(|error| {
                error.within(format!("device {path:?}: bind the host's, because making device nodes is not permitted"))
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
        let destination = destination::find_or_make(root, &path, Shape::File)?;
        attach(node.as_fd(), destination.as_fd()).during(|| format!("bind the device {path:?}"))?;
        descriptors::leave(destination);
    }
    Ok(())
}

impl Device {
    fn parse(entry: &oci::Device) -> Result<Self, Error> {
        let path = container_path("linux.devices", &entry.path)?;
        let invalid = |reason: &str| Error::invalid(format!("linux.devices: {}: {reason}", entry.path));
        let text = path.to_str().map_err(|_| invalid("is not UTF-8"))?;
        let (directory, name) = text.rsplit_once('/').unwrap_or(("", text));
        if name.is_empty() {
            return Err(invalid("is a directory"));
        }
        let number = |n: i64| u32::try_from(n).map_err(|_| invalid("its major or minor number is out of range"));
        let kind = match entry.kind {
            DeviceKind::Char => FileType::CharacterDevice,
            DeviceKind::Block => FileType::BlockDevice,
            DeviceKind::Fifo => FileType::Fifo,
        };
        let owner = match (entry.uid.unwrap_or(0), entry.gid.unwrap_or(0)) {
            (0, 0) => None,
            (uid, gid) if uid == u32::MAX || gid == u32::MAX => return Err(invalid("its owner is not a valid id")),
            (uid, gid) => Some((Uid::from_raw(uid), Gid::from_raw(gid))),
        };
        Ok(Self {
            directory: crate::spec_string::c_string(
                "linux.devices",
                if directory.is_empty() { "/" } else { directory },
            )?,
            name: crate::spec_string::c_string("linux.devices", name)?,
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
            // chown clears setuid and setgid bits.
            chmodat(directory, self.name.as_c_str(), self.mode, AtFlags::empty()).during(path)?;
        }
        Ok(())
    }
}

/// Makes a node; one that exists already must be the same device.
fn make_node(directory: BorrowedFd<'_>, name: &CStr, (kind, mode, number): (FileType, Mode, u64)) -> Result<(), Errno> {
    match mknodat(directory, name, kind, mode, number) {
        Err(Errno::EXIST) => {
            let existing = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let same = FileType::from_raw_mode(existing.st_mode) == kind
                && (kind == FileType::Fifo || existing.st_rdev == number);
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
    let stat = fstat(&null).during(|| "stat the container's /dev/null")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || stat.st_rdev != makedev(NULL.0, NULL.1) {
        return Err(Error::system("check the container's /dev/null: it is not the null device 1:3", Errno::NODEV));
    }
    Ok(null)
}
