//! SELinux: the label of a container's process, and that of the files that it may use.
//!
//! The container's root and the file systems mounted for it show one label for all files (`context=`). Files that it
//! shares with the node or with the pod are labelled individually: volumes for which the request demands it, the pod's
//! `/etc/hosts` and similar files, its `/dev/shm`, and the FIFOs of its stdio.

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
/// Longest path in a volume, bytes: the limit of one system call.
const PATH_MAX: usize = 4095;
/// Directories and files that are never labelled for a container, because the node itself needs their labels. Files in
/// them may be.
const PROTECTED_PATHS: [&str; 32] = [
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

/// SELinux labels of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Label of its processes.
    pub(crate) process: String,
    /// Label of the files that only this container may use.
    pub(crate) file: String,
}

/// Returns the labels of a container; `None` if SELinux is disabled, and for a privileged container.
pub(crate) fn labels(security: &Security) -> Option<Labels> {
    // selinuxfs is registered only where SELinux was enabled at boot.
    static ENABLED: LazyLock<bool> = LazyLock::new(|| {
        let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        filesystems.lines().any(|line| line.ends_with("\tselinuxfs"))
    });
    let process = security.selinux_label.as_ref().filter(|_| !security.privileged && *ENABLED)?;
    let file = file_label(process, file_type(Path::new("/etc/selinux")).as_deref().unwrap_or("container_file_t"));
    Some(Labels { process: process.clone(), file })
}

/// Returns the type of containers' files in the loaded policy (lxc_contexts(5)).
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

/// Builds a file label of this type with the user and the level of a process label.
fn file_label(process: &str, kind: &str) -> String {
    let mut parts = process.splitn(4, ':');
    let user = parts.next().unwrap_or("system_u");
    let level = parts.nth(2).unwrap_or("s0");
    format!("{user}:object_r:{kind}:{level}")
}

/// Labels the root of the pod's `/dev/shm`; files created in it later inherit the label.
pub(crate) fn label_shm(tmpfs: impl AsFd, label: &str) -> Result<(), Error> {
    let path = format!("/proc/self/fd/{}", tmpfs.as_fd().as_raw_fd());
    ignore_unlabelled(setxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
        .map_err(failed(format_args!("label the pod's /dev/shm {label}")))
}

/// Labels a file in a directory.
pub(crate) fn label_in(directory: impl AsFd, name: &str, label: &str) -> Result<(), Error> {
    label_path(Path::new(&format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd())), label)
}

/// Labels one file or directory, without following a symbolic link.
pub(crate) fn label_path(path: &Path, label: &str) -> Result<(), Error> {
    ignore_unlabelled(lsetxattr(path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
        .map_err(failed(format_args!("label {} {label}", path.display())))
}

/// Labels a volume and everything in it. A container may have created its contents, so no symbolic link in it is
/// followed.
///
/// # Errors
/// `InvalidArgument` for a directory that the node itself needs.
pub(crate) fn relabel(volume: &Path, label: &str) -> Result<(), Error> {
    let operation = format!("label volume {} {label}", volume.display());
    let root = match openat(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        // Opening the volume reports this error.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        root => root.map_err(failed(&operation))?,
    };
    let by_descriptor = format!("/proc/self/fd/{}", root.as_raw_fd());
    let real = fs::read_link(&by_descriptor).map_err(failed(&operation))?;
    if is_protected(&real) {
        return Err(Error::invalid(format!(
            "{operation}: {} belongs to the node and must keep its labels; do not set selinux_relabel",
            real.display()
        )));
    }
    ignore_unlabelled(setxattr(&by_descriptor, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
        .map_err(failed(&operation))?;
    let kind = FileType::from_raw_mode(fstat(&root).map_err(failed(&operation))?.st_mode);
    if kind == FileType::Directory {
        let directory = openat(&root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        relabel_below(&directory.map_err(failed(&operation))?, label).map_err(|error| error.during(operation))?;
    }
    Ok(())
}

/// Whether a path, without links, is one of [`PROTECTED_PATHS`].
fn is_protected(real: &Path) -> bool {
    PROTECTED_PATHS.iter().any(|path| real == Path::new(path))
}

/// Labels everything below a directory. Opens one directory at a time by its path below the root: a tree may be deeper
/// than the stack or the table of descriptors allows.
fn relabel_below(root: &OwnedFd, label: &str) -> Result<(), Error> {
    let mut pending = vec![PathBuf::from(".")];
    while let Some(directory) = pending.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match openat2(root, &directory, flags, Mode::empty(), resolve) {
            Ok(opened) => opened,
            // Removed or replaced in the meantime.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(failed(format_args!("open {}", directory.display()))(errno)),
        };
        for entry in Dir::read_from(&opened).map_err(failed("read a directory"))? {
            let entry = entry.map_err(failed("read a directory"))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut path = format!("/proc/self/fd/{}/", opened.as_raw_fd()).into_bytes();
            path.extend_from_slice(name.to_bytes());
            let path = PathBuf::from(std::ffi::OsString::from_vec(path));
            if !has_label(&path, label) {
                ignore_unlabelled(lsetxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()))
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

fn has_label(path: &Path, label: &str) -> bool {
    let mut current = [0; 4096];
    let length = lgetxattr(path, ATTRIBUTE, &mut current[..]).unwrap_or(0);
    current[..length].strip_suffix(b"\0").unwrap_or(&current[..length]) == label.as_bytes()
}

/// Ignores the errors of a file that was removed in the meantime and of a file system that does not support labels.
fn ignore_unlabelled(outcome: Result<(), Errno>) -> Result<(), Errno> {
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
    fn protected_paths_keep_their_labels() {
        // Some of them may be links into /usr on this system.
        for path in PROTECTED_PATHS.iter().filter(|path| Path::new(path).exists()) {
            assert!(is_protected(&fs::canonicalize(path).expect("canonical path")), "{path}");
        }
        assert!(!is_protected(Path::new("/var/lib/kubelet")));
    }
}
