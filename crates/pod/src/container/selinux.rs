//! SELinux: the label of a container's process, and that of the files it may use.
//!
//! A container's root, and what is mounted for it, show one label for all files (`context=`). What it shares with the
//! node or with the pod is labelled itself: volumes where the request wants it, the pod's `/etc/hosts` and its like,
//! its `/dev/shm`, and the FIFOs of its streams.

use std::{
    fs,
    os::{
        fd::AsRawFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::LazyLock,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, lgetxattr, lsetxattr, openat, openat2,
        setxattr,
    },
    io::Errno,
};

use crate::{Error, Security, error::failed};

const ATTRIBUTE: &str = "security.selinux";
/// Longest path in a volume, bytes: what one system call takes.
const PATH_MAX: usize = 4095;
/// Not to be labelled for one container, because the node needs their labels itself. What lies in them may be.
const OF_THE_NODE: [&str; 32] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/passwd",
    "/etc/pki",
    "/etc/shadow",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/log",
];

/// What SELinux calls a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Its process.
    pub(crate) process: String,
    /// The files that only it may use.
    pub(crate) file: String,
}

/// `None` where SELinux is off, and for a privileged container.
pub(crate) fn labels(security: &Security) -> Option<Labels> {
    // selinuxfs is registered only where SELinux was enabled at boot.
    static ENABLED: LazyLock<bool> = LazyLock::new(|| {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.ends_with("\tselinuxfs"))
    });
    let process = security.selinux_label.as_ref().filter(|_| !security.privileged && *ENABLED)?;
    let file = file_label(process, file_type(Path::new("/etc/selinux")).as_deref().unwrap_or("container_file_t"));
    Some(Labels { process: process.clone(), file })
}

/// The type of containers' files in the policy that is loaded (lxc_contexts(5)).
fn file_type(selinux: &Path) -> Option<String> {
    let value = |text: &str, key: &str| {
        let mut lines = text.lines().rev().filter_map(|line| line.split_once('='));
        let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    let policy = value(&fs::read_to_string(selinux.join("config")).ok()?, "SELINUXTYPE")?;
    let contexts = fs::read_to_string(selinux.join(policy).join("contexts/lxc_contexts")).ok()?;
    value(&contexts, "file")?.split(':').nth(2).map(str::to_owned)
}

/// Of a process's user and level.
fn file_label(process: &str, kind: &str) -> String {
    let mut parts = process.splitn(4, ':');
    let user = parts.next().unwrap_or("system_u");
    let level = parts.nth(2).unwrap_or("s0");
    format!("{user}:object_r:{kind}:{level}")
}

/// Labels the root of the pod's `/dev/shm`; what is made in it later has the same.
pub(crate) fn label_shm(tmpfs: impl AsFd, label: &str) -> Result<(), Error> {
    let path = format!("/proc/self/fd/{}", tmpfs.as_fd().as_raw_fd());
    settled(setxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
        .map_err(failed(format_args!("label the pod's /dev/shm {label}")))
}

/// Labels a file of a directory.
pub(crate) fn label_in(directory: impl AsFd, name: &str, label: &str) -> Result<(), Error> {
    label_path(Path::new(&format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd())), label)
}

/// Labels a file or directory of our own.
pub(crate) fn label_path(path: &Path, label: &str) -> Result<(), Error> {
    settled(lsetxattr(path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
        .map_err(failed(format_args!("label {} {label}", path.display())))
}

/// Labels a volume of the node with all that is in it. It may be full of what a container made: no symlink in it is
/// followed.
///
/// # Errors
/// `InvalidArgument` for a directory that is the node's own.
pub(crate) fn relabel(volume: &Path, label: &str) -> Result<(), Error> {
    let told = format!("label volume {} {label}", volume.display());
    let root = match openat(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        // Whoever mounts it says so.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        root => root.map_err(failed(&told))?,
    };
    let by_descriptor = format!("/proc/self/fd/{}", root.as_raw_fd());
    let real = fs::read_link(&by_descriptor).map_err(failed(&told))?;
    if is_the_nodes(&real) {
        return Err(Error::invalid(format!(
            "{told}: {} is the node's own and keeps its labels; leave selinux_relabel out",
            real.display()
        )));
    }
    settled(setxattr(&by_descriptor, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())).map_err(failed(&told))?;
    let kind = FileType::from_raw_mode(fstat(&root).map_err(failed(&told))?.st_mode);
    if kind == FileType::Directory {
        let directory = openat(&root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        below(&directory.map_err(failed(&told))?, label).map_err(|error| error.during(told))?;
    }
    Ok(())
}

/// Of a path without links.
fn is_the_nodes(real: &Path) -> bool {
    OF_THE_NODE.iter().any(|own| real == Path::new(own))
}

/// One directory after the other, by its path below the root: a tree may be deeper than a stack or a table of
/// descriptors.
fn below(root: &OwnedFd, label: &str) -> Result<(), Error> {
    let mut pending = vec![PathBuf::from(".")];
    while let Some(directory) = pending.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = match openat2(root, &directory, flags, Mode::empty(), resolve) {
            Ok(directory) => directory,
            // Something else by now, or nothing.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(failed(format_args!("open {}", directory.display()))(errno)),
        };
        for entry in Dir::read_from(&directory).map_err(failed("read a directory"))? {
            let entry = entry.map_err(failed("read a directory"))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
            path.extend_from_slice(name.to_bytes());
            let path = PathBuf::from(std::ffi::OsString::from_vec(path));
            if !has(&path, label) {
                settled(lsetxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
                    .map_err(failed(format_args!("label {:?}", String::from_utf8_lossy(name.to_bytes()))))?;
            }
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                let inner = directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                if inner.as_os_str().len() > PATH_MAX {
                    return Err(Error::invalid(format!("a path in it is longer than {PATH_MAX} bytes")));
                }
                pending.push(inner);
            }
        }
    }
    Ok(())
}

fn has(path: &Path, label: &str) -> bool {
    let mut known = [0; 4096];
    let length = lgetxattr(path, ATTRIBUTE, &mut known[..]).unwrap_or(0);
    known[..length].strip_suffix(b"\0").unwrap_or(&known[..length]) == label.as_bytes()
}

/// What went meanwhile needs no label, and a file system without labels has none.
fn settled(outcome: Result<(), Errno>) -> Result<(), Errno> {
    match outcome {
        Err(Errno::NOENT | Errno::OPNOTSUPP) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_level_of_their_process() {
        let label = |process| file_label(process, "container_file_t");
        assert_eq!(label("system_u:system_r:container_t:s0:c1,c2"), "system_u:object_r:container_file_t:s0:c1,c2");
        assert_eq!(label("a:b:c:s0-s0:c0.c1023"), "a:object_r:container_file_t:s0-s0:c0.c1023");
    }

    #[test]
    fn the_policy_names_the_type_of_files() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(file_type(directory.path()), None);
        fs::create_dir_all(directory.path().join("mine/contexts")).expect("a directory");
        fs::write(directory.path().join("config"), "# a comment\nSELINUX=enforcing\nSELINUXTYPE=mine\n")
            .expect("written");
        let contexts = "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:special_t:s0\"\n";
        fs::write(directory.path().join("mine/contexts/lxc_contexts"), contexts).expect("written");
        assert_eq!(file_type(directory.path()).as_deref(), Some("special_t"));
    }

    #[test]
    fn what_is_the_nodes_keeps_its_labels() {
        // Some of them are links into /usr on this system.
        for own in OF_THE_NODE.iter().filter(|own| Path::new(own).exists()) {
            assert!(is_the_nodes(&fs::canonicalize(own).expect("it is there")), "{own}");
        }
        assert!(!is_the_nodes(Path::new("/var/lib/kubelet")));
    }
}
