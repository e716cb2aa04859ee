//! New instances of file systems, made detached: fsopen, fsconfig, fsmount.

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
    gathered,
    mounts::{long_options, option::Options},
};

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
    /// Whether it is made of directories or a device of the host: its source or an option is a path there.
    /// `//server/share` is none, and what is of a namespace (proc, …) or of memory has no such path whatever its source
    /// is.
    pub(crate) fn is_of_host(&self, options: &Options) -> bool {
        let kind = self.kind.to_str().unwrap_or_default();
        if known_options(kind).is_some() {
            return false;
        }
        let source = self.source.as_ref().map_or(&[][..], |source| source.to_bytes());
        let path = |(_, value): &(String, Option<String>)| value.as_ref().is_some_and(|value| value.starts_with('/'));
        kind == "overlay" || source.starts_with(b"/") && !source.starts_with(b"//") || options.data.iter().any(path)
    }

    /// A detached mount of a new instance.
    pub(crate) fn make(&self, options: &Options) -> Result<OwnedFd, Error> {
        if long_options::are_long(&self.source, options) {
            return long_options::make(self, options);
        }
        self.make_new(options, true)
    }

    /// Engines say `gid=5` of a devpts, a group that a small user namespace does not have: then without. The kernel
    /// says so at the option or, before devpts took options one by one (as in Linux 6.1), at the creation.
    fn make_new(&self, options: &Options, tty_group: bool) -> Result<OwnedFd, Error> {
        let context = match (fsopen(self.kind.as_c_str(), FsOpenFlags::FSOPEN_CLOEXEC), self.hosts_place()) {
            (Err(Errno::PERM), Some(place)) => return self.bind_hosts(place, options),
            (Err(Errno::NODEV), _) => {
                let what = format!("open file system {:?}: this kernel has none of that name", self.kind);
                return Err(Error::system(what, Errno::NODEV));
            }
            (context, _) => context.during(|| format!("open file system {:?}", self.kind))?,
        };
        if let Some(source) = &self.source {
            fsconfig_set_string(context.as_fd(), c"source", source.as_c_str())
                .during(|| format!("set source {source:?} of {:?}", self.kind))?;
        }
        for (key, value) in &options.data {
            match value {
                // Every instance has been new since Linux 4.7.
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
        // As with mount(2): a device that is read-only can only be mounted so.
        if options.own.set.contains(MountAttrFlags::MOUNT_ATTR_RDONLY) && self.is_of_host(options) {
            fsconfig_set_flag(context.as_fd(), c"ro").during(|| format!("set option ro of {:?}", self.kind))?;
        }
        match (fsconfig_create(context.as_fd()), self.hosts_place()) {
            (Err(Errno::PERM), Some(place)) => {
                descriptors::leave(context);
                return self.bind_hosts(place, options);
            }
            (Err(Errno::INVAL), _) if tty_group && self.has_tty_group(options) => {
                descriptors::leave(context);
                return self.make_new(options, false);
            }
            (created, _) => created.during(|| format!("make a new {:?}", self.kind))?,
        }
        let tree = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, options.own.set)
            .during(|| format!("mount a new {:?} with {:?}", self.kind, options.own.set))?;
        descriptors::leave(context);
        Ok(tree)
    }

    fn is_tty_group(&self, key: &str, value: &str) -> bool {
        self.kind.as_c_str() == c"devpts" && key == "gid" && value.parse::<u32>().is_ok()
    }

    fn has_tty_group(&self, options: &Options) -> bool {
        options.data.iter().any(|(key, value)| value.as_ref().is_some_and(|value| self.is_tty_group(key, value)))
    }

    /// Where the host has a file system that shows a namespace (sysfs the network, proc the processes, mqueue the
    /// queues): a user namespace that does not own that may not make one.
    fn hosts_place(&self) -> Option<&'static CStr> {
        match self.kind.to_bytes() {
            b"sysfs" => Some(c"/sys"),
            b"proc" => Some(c"/proc"),
            b"mqueue" => Some(c"/dev/mqueue"),
            _ => None,
        }
    }

    /// In place of a new one: what is shown is the same namespace.
    fn bind_hosts(&self, place: &CStr, options: &Options) -> Result<OwnedFd, Error> {
        let why = || {
            format!(
                "mount {:?} of a namespace that the container's user namespace does not own: bind the host's",
                self.kind
            )
        };
        let tree = gathered::clone(place, true).map_err(|error| error.within(why()))?;
        let mut attributes =
            MountAttributes { set: options.own.set & !MountAttrFlags::MOUNT_ATTR__ATIME, ..Default::default() };
        if self.kind.as_c_str() == c"sysfs" {
            attributes.set |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        if !attributes.is_empty() {
            attributes.apply(&tree, true).during(why)?;
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_known() {
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
            assert_eq!(fs.is_of_host(&options), expected, "{fs:?}");
        }
    }
}
