//! New instances of file systems, made detached: fsopen, fsconfig, fsmount.

use std::ffi::CString;

use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen},
};

use crate::{Error, descriptors, error::During, mounts::option::Options};

/// Options of the file systems every container has, so that a wrong word is told before anything is made.
const KNOWN: [(&str, &[&str]); 7] = [
    ("proc", &["hidepid", "gid", "subset"]),
    ("sysfs", &[]),
    ("mqueue", &[]),
    ("devpts", &["newinstance", "ptmxmode", "mode", "gid", "uid", "max"]),
    (
        "tmpfs",
        &[
            "size",
            "nr_blocks",
            "nr_inodes",
            "mode",
            "uid",
            "gid",
            "huge",
            "mpol",
            "inode32",
            "inode64",
            "noswap",
            "quota",
        ],
    ),
    ("cgroup", &[]),
    (
        "cgroup2",
        &["nsdelegate", "memory_localevents", "memory_recursiveprot", "memory_hugetlb_accounting", "favordynmods"],
    ),
];

/// The options a file system takes; `None`: the kernel will tell.
pub(crate) fn known_options(kind: &str) -> Option<&'static [&'static str]> {
    KNOWN.iter().find(|(name, _)| *name == kind).map(|(_, options)| *options)
}

/// A file system to make.
#[derive(Debug)]
pub(crate) struct FileSystem {
    pub(crate) kind: CString,
    pub(crate) source: Option<CString>,
}

impl FileSystem {
    /// A detached mount of a new instance.
    pub(crate) fn make(&self, options: &Options) -> Result<OwnedFd, Error> {
        let context = fsopen(self.kind.as_c_str(), FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
            Errno::NODEV => {
                Error::system(format!("open file system {:?}: this kernel has none of that name", self.kind), errno)
            }
            errno => Error::system(format!("open file system {:?}", self.kind), errno),
        })?;
        if let Some(source) = &self.source {
            fsconfig_set_string(context.as_fd(), c"source", source.as_c_str())
                .during(|| format!("set source {source:?} of {:?}", self.kind))?;
        }
        for (key, value) in &options.data {
            match value {
                // Every instance has been new since Linux 4.7.
                None if key == "newinstance" => Ok(()),
                None => fsconfig_set_flag(context.as_fd(), key.as_str()),
                Some(value) => fsconfig_set_string(context.as_fd(), key.as_str(), value.as_str()),
            }
            .during(|| format!("set option {key}={} of {:?}", value.as_deref().unwrap_or(""), self.kind))?;
        }
        fsconfig_create(context.as_fd()).during(|| format!("make a new {:?}", self.kind))?;
        let tree = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, options.own.set)
            .during(|| format!("mount a new {:?} with {:?}", self.kind, options.own.set))?;
        descriptors::leave(context);
        Ok(tree)
    }
}
