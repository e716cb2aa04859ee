//! New file system instances as detached mounts: fsopen, fsconfig, fsmount.

use std::ffi::{CStr, CString};

use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
};

use syscall::mount_attributes::MountAttributes;

use crate::{
    Error, descriptors,
    error::During,
    mount_tree,
    mounts::{long_options, option::Options},
};

/// Options of the file systems that every container has, so that an unknown option is reported before anything is made.
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

/// Returns the options that a file system accepts; `None`: unknown, only the kernel checks them.
pub(crate) fn known_options(kind: &str) -> Option<&'static [&'static str]> {
    KNOWN.iter().find(|(name, _)| *name == kind).map(|(_, options)| *options)
}

/// The type and source of a file system to make.
#[derive(Debug)]
pub(crate) struct FileSystem {
    pub(crate) kind: CString,
    pub(crate) source: Option<CString>,
}

impl FileSystem {
    /// Whether it is made of directories or a device of the host, that is, its source or an option is a path of the
    /// host. `//server/share` is not such a path, and file systems that show a namespace (proc, …) or are in memory
    /// never have one, whatever their source is.
    pub(crate) fn is_host_file_system(&self, options: &Options) -> bool {
        let kind = self.kind.to_str().unwrap_or_default();
        if known_options(kind).is_some() {
            return false;
        }
        let source = self.source.as_ref().map_or(&[][..], |source| source.to_bytes());
        let is_path =
            |(_, value): &(String, Option<String>)| value.as_ref().is_some_and(|value| value.starts_with('/'));
        kind == "overlay" || source.starts_with(b"/") && !source.starts_with(b"//") || options.data.iter().any(is_path)
    }

    /// Makes a new instance and returns a detached mount of it.
    pub(crate) fn make(&self, options: &Options) -> Result<OwnedFd, Error> {
        if long_options::are_long(self.source.as_deref(), options) {
            return long_options::make(&self.kind, self.source.as_deref(), options);
        }
        self.make_new(options, true)
    }

    /// Makes a new instance. Engines set `gid=5` for devpts, a group that a small user namespace does not map; then the
    /// option is left out (`tty_group` is false). The kernel refuses the option itself or, on kernels whose devpts does
    /// not parse options one by one (such as Linux 6.1), the creation.
    fn make_new(&self, options: &Options, tty_group: bool) -> Result<OwnedFd, Error> {
        let context = match (fsopen(self.kind.as_c_str(), FsOpenFlags::FSOPEN_CLOEXEC), self.host_mount_point()) {
            (Err(Errno::PERM), Some(mount_point)) => return self.bind_hosts(mount_point, options),
            (Err(Errno::NODEV), _) => {
                let operation = format!("open file system {:?}: this kernel does not support it", self.kind);
                return Err(Error::system(operation, Errno::NODEV));
            }
            (context, _) => context.during(|| format!("open file system {:?}", self.kind))?,
        };
        if let Some(source) = &self.source {
            fsconfig_set_string(context.as_fd(), c"source", source.as_c_str())
                .during(|| format!("set source {source:?} of {:?}", self.kind))?;
        }
        for (key, value) in &options.data {
            match value {
                // Since Linux 4.7 every devpts mount is a new instance.
                None if key == "newinstance" => Ok(()),
                None => fsconfig_set_flag(context.as_fd(), key.as_str()),
                Some(value) if !tty_group && self.is_tty_group(key, value) => Ok(()),
                Some(value) => match fsconfig_set_string(context.as_fd(), key.as_str(), value.as_str()) {
                    Err(Errno::INVAL) if self.is_tty_group(key, value) => Ok(()),
                    result => result,
                },
            }
            .during(|| format!("set option {key}={} of {:?}", value.as_deref().unwrap_or(""), self.kind))?;
        }
        // As with mount(2): a read-only device can only be mounted read-only.
        if options.attributes.set.contains(MountAttrFlags::MOUNT_ATTR_RDONLY) && self.is_host_file_system(options) {
            fsconfig_set_flag(context.as_fd(), c"ro").during(|| format!("set option ro of {:?}", self.kind))?;
        }
        match (fsconfig_create(context.as_fd()), self.host_mount_point()) {
            (Err(Errno::PERM), Some(mount_point)) => {
                descriptors::leave(context);
                return self.bind_hosts(mount_point, options);
            }
            (Err(Errno::INVAL), _) if tty_group && self.has_tty_group(options) => {
                descriptors::leave(context);
                return self.make_new(options, false);
            }
            (created, _) => created.during(|| format!("make a new {:?}", self.kind))?,
        }
        let tree = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, options.attributes.set)
            .during(|| format!("mount a new {:?} with {:?}", self.kind, options.attributes.set))?;
        descriptors::leave(context);
        Ok(tree)
    }

    fn is_tty_group(&self, key: &str, value: &str) -> bool {
        self.kind.as_c_str() == c"devpts" && key == "gid" && value.parse::<u32>().is_ok()
    }

    fn has_tty_group(&self, options: &Options) -> bool {
        options.data.iter().any(|(key, value)| value.as_ref().is_some_and(|value| self.is_tty_group(key, value)))
    }

    /// Returns the host's mount point of a file system that shows a namespace (sysfs network, proc PID, mqueue IPC). A
    /// process in a user namespace that does not own that namespace may not mount a new instance.
    fn host_mount_point(&self) -> Option<&'static CStr> {
        match self.kind.to_bytes() {
            b"sysfs" => Some(c"/sys"),
            b"proc" => Some(c"/proc"),
            b"mqueue" => Some(c"/dev/mqueue"),
            _ => None,
        }
    }

    /// Binds the host's instance in place of a new one; it shows the same namespace.
    fn bind_hosts(&self, mount_point: &CStr, options: &Options) -> Result<OwnedFd, Error> {
        let operation = || {
            format!(
                "mount {:?} of a namespace that the container's user namespace does not own: bind the host's",
                self.kind
            )
        };
        let tree = mount_tree::clone_host_mount(mount_point, true).map_err(|error| error.within(operation()))?;
        let mut attributes =
            MountAttributes { set: options.attributes.set & !MountAttrFlags::MOUNT_ATTR__ATIME, ..Default::default() };
        if self.kind.as_c_str() == c"sysfs" {
            attributes.set |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        if !attributes.is_empty() {
            attributes.apply(&tree, true).during(operation)?;
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_recognised() {
        for (kind, source, words, expected) in [
            ("overlay", "overlay", &["lowerdir=relative"][..], true),
            ("ext4", "/dev/sda1", &[], true),
            ("xfs", "UUID=x", &["logdev=/dev/sdb1"], true),
            ("tmpfs", "/dev/shm", &[], false),
            ("nfs", "server:/export", &["vers=4", "proto=tcp"], false),
            ("cifs", "//server/share", &[], false),
            ("ramfs", "none", &[], false),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let options = Options::parse("/x", &words, None).unwrap();
            let [kind, source] = [kind, source].map(|text| CString::new(text).unwrap());
            let fs = FileSystem { kind, source: Some(source) };
            assert_eq!(fs.is_host_file_system(&options), expected, "{fs:?}");
        }
    }
}
