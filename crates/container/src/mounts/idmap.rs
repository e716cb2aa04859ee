//! `mounts[].uidMappings`, `gidMappings` and the options `idmap` and `ridmap`: id-mapped bind mounts. Needs Linux 5.12.
//!
//! The kernel takes the map from a user namespace. One is made for each different pair of maps; no process ever enters
//! it.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{fstat, major, minor},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};
use syscall::clone::Clone3;

use crate::{
    Error,
    id_mappings::IdMappings,
    user_namespace::{self, UserNamespace},
};

/// The map of one mount.
#[derive(Debug)]
pub(crate) struct IdMap {
    /// The mount's maps; `None`: the container's.
    mappings: Option<IdMappings>,
    /// Whether mounts below are mapped too.
    recursive: bool,
}

impl IdMap {
    /// Parses the map of an entry. `option`: `idmap` (false) or `ridmap` (true). `user_namespace`: whether the
    /// container has another user namespace than the caller.
    pub(crate) fn parse(
        entry: &oci::Mount,
        option: Option<bool>,
        bind: bool,
        user_namespace: bool,
    ) -> Result<Option<Self>, Error> {
        let field = format!("mount {}", entry.destination);
        let has_maps = !entry.uid_mappings.is_empty() || !entry.gid_mappings.is_empty();
        if !has_maps && option.is_none() {
            return Ok(None);
        }
        if !bind {
            return Err(Error::invalid(format!("{field}: only bind mounts can be id-mapped")));
        }
        let mappings =
            has_maps.then(|| IdMappings::parse(&field, &entry.uid_mappings, &entry.gid_mappings)).transpose()?;
        if mappings.is_none() && !user_namespace {
            let fix = "set uidMappings and gidMappings, or give the container a user namespace";
            return Err(Error::invalid(format!("{field}: idmap without a map: {fix}")));
        }
        Ok(Some(Self { mappings, recursive: option == Some(true) }))
    }
}

/// User namespaces for the maps of a container's mounts.
pub(crate) struct Maps<'a> {
    container: &'a UserNamespace,
    namespaces: Vec<(IdMappings, OwnedFd)>,
}

impl<'a> Maps<'a> {
    pub(crate) fn new(container: &'a UserNamespace) -> Self {
        Self { container, namespaces: Vec::new() }
    }

    /// Applies a map to a detached mount.
    pub(crate) fn apply(&mut self, map: &IdMap, tree: BorrowedFd<'_>) -> Result<(), Error> {
        let namespace = self.namespace(map)?;
        syscall::idmapped_mount::map_ids(tree, namespace, map.recursive).map_err(|error| {
            let cause = Errno::from_io_error(&error);
            let place = || file_system(tree).unwrap_or_else(|| "this file system".to_owned());
            let below = if map.recursive { " or one mounted below it" } else { "" };
            let operation = match cause {
                Some(Errno::INVAL) => format!("map ids: {}{below} cannot be id-mapped on this kernel", place()),
                Some(Errno::PERM) => {
                    format!("map ids: {} is id-mapped already, or the caller lacks the privileges", place())
                }
                Some(Errno::NOSYS) => "map ids: needs Linux 5.12".to_owned(),
                _ => format!("map ids of {}", place()),
            };
            Error::system(operation, error)
        })
    }

    fn namespace(&mut self, map: &IdMap) -> Result<BorrowedFd<'_>, Error> {
        let mappings = match (&map.mappings, self.container) {
            // Engines repeat the container's maps for each volume; its user namespace then serves.
            (Some(mappings), UserNamespace::Join(fd, Some(containers))) if mappings == containers => {
                return Ok(fd.as_fd());
            }
            (Some(mappings), _) | (None, UserNamespace::New(mappings)) => mappings,
            (None, UserNamespace::Join(fd, _)) => return Ok(fd.as_fd()),
            (None, UserNamespace::Same) => return Err(Error::invalid("idmap: the container has no user namespace")),
        };
        let existing = self.namespaces.iter().position(|(maps, _)| maps == mappings);
        let index = match existing {
            Some(index) => index,
            None => {
                self.namespaces.push((mappings.clone(), user_namespace::make(mappings)?));
                self.namespaces.len() - 1
            }
        };
        Ok(self.namespaces[index].1.as_fd())
    }
}

/// Returns the type of the file system that a mount is on, for messages. A separate process asks, with a timeout,
/// because a FUSE server in a container may never answer.
fn file_system(tree: BorrowedFd<'_>) -> Option<String> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let (answer, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    let child = Clone3::default().fork(|| {
        let closed = syscall::descriptors::close_all_except(&mut [tree.as_raw_fd(), write.as_raw_fd()]);
        let name = from_mountinfo(tree).or_else(|| from_magic(tree).map(str::to_owned)).unwrap_or_default();
        i32::from(closed.is_err() || rustix::io::write(&write, name.as_bytes()).is_err())
    });
    drop(write);
    let _ = poll(&mut [PollFd::new(&answer, PollFlags::IN)], Some(&timeout));
    let mut name = [0; 64];
    let length = rustix::io::read(&answer, &mut name).unwrap_or(0);
    if let Ok(child) = child {
        let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
        // If it has not exited yet, the process that reaps the caller's children reaps it later.
        let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
    let name = std::str::from_utf8(&name[..length]).ok().filter(|name| !name.is_empty());
    name.map(|name| format!("file system {name:?}"))
}

/// Returns the type by its magic number, for file systems that are not in the caller's mountinfo: a monitor has only
/// three mounts. First those that no kernel can id-map, then those that older kernels cannot (statfs(2),
/// include/uapi/linux/magic.h).
fn from_magic(tree: BorrowedFd<'_>) -> Option<&'static str> {
    const KINDS: [(u32, &str); 22] = [
        (0x9fa0, "proc"),
        (0x6265_6572, "sysfs"),
        (0x0027_e0eb, "cgroup"),
        (0x6367_7270, "cgroup2"),
        (0x1cd1, "devpts"),
        (0x1980_0202, "mqueue"),
        (0x6462_6720, "debugfs"),
        (0x7472_6163, "tracefs"),
        (0x7363_6673, "securityfs"),
        (0xcafe_4a11, "bpf"),
        (0x6e73_6673, "nsfs"),
        (0x6969, "nfs"),
        (0xff53_4d42, "cifs"),
        (0xfe53_4d42, "smb2"),
        (0x00c3_6400, "ceph"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "fuse"),
        (0x794c_7630, "overlay"),
        (0x9584_58f6, "hugetlbfs"),
        (0x0102_1994, "tmpfs"),
        (0x2fc1_2fc1, "zfs"),
        (0x4d44, "vfat"),
    ];
    let magic = rustix::fs::fstatfs(tree).ok()?.f_type as u32;
    KINDS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Returns the type that mountinfo shows.
fn from_mountinfo(tree: BorrowedFd<'_>) -> Option<String> {
    let device = fstat(tree).ok()?.st_dev;
    let number = format!("{}:{}", major(device), minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_named_as_mountinfo_names_them() {
        for path in ["/proc/sys", "/sys/kernel", "/dev/pts"] {
            let file = std::fs::File::open(path).expect(path);
            assert_eq!(from_magic(file.as_fd()), from_mountinfo(file.as_fd()).as_deref(), "{path}");
        }
    }
}
