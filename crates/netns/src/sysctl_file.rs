//! Files of sysctls, in proc file systems of this process.
//!
//! The kernel keeps entries for the files below `/proc/sys/net` that were opened, those of all namespaces in one chain per
//! directory: the first file of a namespace below `net/ipv4` takes 0.3 ms after the same in 1000 other namespaces, and 1 ms
//! with cold caches. In a proc file system that was mounted a moment ago it takes 20 µs. Mounting one takes 20 µs and
//! freeing it 60 µs, once per 16 files.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// How many files are opened in one file system.
const USES: u32 = 16;
/// Longest value that is read, in bytes.
const VALUE_MAX: u64 = 64 * 1024;

static NEWEST: Mutex<Option<ProcFs>> = Mutex::new(None);

/// A proc file system that is mounted nowhere. The kernel frees it when nothing of it is open.
struct ProcFs {
    root: Arc<OwnedFd>,
    uses: u32,
}

impl ProcFs {
    /// Mounts one, for its first use. Each is a file system of its own since Linux 5.8; before, all have the same entries. Requires
    /// `CAP_SYS_ADMIN`.
    fn mount() -> rustix::io::Result<Self> {
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Self { root: Arc::new(root), uses: 1 })
    }

    /// Returns the newest one, or mounts one if it was used [`USES`] times.
    fn newest() -> rustix::io::Result<Arc<OwnedFd>> {
        let newest = || NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = newest().as_mut().filter(|current| current.uses < USES) {
            current.uses += 1;
            return Ok(Arc::clone(&current.root));
        }
        // Mounting and freeing wait for other mounts of the node, so neither is done with the lock.
        let mounted = Self::mount()?;
        let root = Arc::clone(&mounted.root);
        let replaced = newest().replace(mounted);
        drop(replaced);
        Ok(root)
    }
}

/// Opens a file or directory below `/proc/sys`. The namespaces of the calling thread determine what it refers to.
pub(crate) fn open(key: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let own = ProcFs::newest().and_then(|root| openat(&root, format!("sys/{key}"), flags, Mode::empty()));
    match own {
        // A process that may not mount, or whose AppArmor profile refuses files of mounts that have no path.
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {}
        opened => return Ok(opened?),
    }
    Ok(openat(CWD, format!("/proc/sys/{key}"), flags, Mode::empty())?)
}

/// Returns the value of a sysctl in the namespaces of the calling thread, as the kernel writes it: with the end of the line.
/// `key` is a path below `/proc/sys`, such as `net/ipv4/ip_forward`.
///
/// In a process that may mount, this takes as long with 1000 namespaces as with one (Linux 5.8); opening the file below
/// `/proc/sys` then takes 1 ms.
///
/// # Errors
/// `ENOENT` if the kernel, or the namespace, does not have it.
pub fn read_sysctl(key: &str) -> io::Result<String> {
    let mut text = String::new();
    File::from(open(key, OFlags::RDONLY)?).take(VALUE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Sets a sysctl in the namespaces of the calling thread. See [`read_sysctl`].
///
/// # Errors
/// `ENOENT` if the kernel, or the namespace, does not have it; `EINVAL` if the kernel refuses the value.
pub fn write_sysctl(key: &str, value: &str) -> io::Result<()> {
    File::from(open(key, OFlags::WRONLY)?).write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;

    /// Whether the namespace forwards.
    const FORWARDS: &str = "net/ipv4/ip_forward";

    #[test]
    fn values_are_those_of_the_threads_namespace() {
        let [one, two] = [(); 2].map(|()| Namespace::create().expect("a namespace"));
        let set = |namespace: &Namespace, value: &'static str| {
            namespace.enter(move || write_sysctl(FORWARDS, value)).expect("entered").expect("written");
        };
        // More often than a file system is used.
        for value in (0..2 * USES).map(|n| if n % 2 == 0 { "1" } else { "0" }) {
            let other = if value == "1" { "0" } else { "1" };
            set(&one, value);
            set(&two, other);
            for (namespace, expected) in [(&one, value), (&two, other)] {
                let read = namespace.enter(|| read_sysctl(FORWARDS)).expect("entered").expect("read");
                assert_eq!(read.trim(), expected);
            }
        }
        // The file below `/proc/sys` has the same value.
        let file = one.enter(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")).expect("entered");
        assert_eq!(file.expect("read"), "0\n");
    }

    #[test]
    fn files_are_opened_in_a_file_system_of_this_process() {
        let device = |file: &OwnedFd| rustix::fs::fstat(file).expect("a file").st_dev;
        let own = device(&open(FORWARDS, OFlags::RDONLY).expect("opened"));
        let of_node = File::open("/proc/sys/net/ipv4/ip_forward").expect("opened");
        assert_ne!(own, device(&of_node.into()));
    }

    #[test]
    fn unknown_keys_and_values_are_errors() {
        let namespace = Namespace::create().expect("a namespace");
        let write =
            |key, value| namespace.enter(move || write_sysctl(key, value)).expect("entered").expect_err("refused");
        assert_eq!(write("net/ipv4/none", "1").kind(), io::ErrorKind::NotFound);
        assert_eq!(write(FORWARDS, "x").kind(), io::ErrorKind::InvalidInput);
    }
}
