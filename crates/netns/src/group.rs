//! Groups of pins that are removed at once.

use std::{fs, io, path::Path, time::Instant};

use rustix::{
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
};

use crate::{Error, PinDir, pin::StoreLock, teardown};

/// What /proc/self/mountinfo shows as the source of a group's tmpfs: no tmpfs of another program has it.
const SOURCE: &str = "netns";

/// A directory of pins with a store that is a mount of its own: all its pins are removed by one umount(2), which waits
/// once for the kernel instead of once for each pin.
#[derive(Clone, Debug)]
pub struct PinGroup {
    pins: PinDir,
}

impl PinGroup {
    /// Opens a group, and mounts a tmpfs on its store if it is not mounted. The store must be a directory of this group
    /// alone; the public directory may show pins of other groups too.
    ///
    /// # Errors
    /// When a directory cannot be created, a path is not absolute, something else is mounted on the store, or it cannot be
    /// mounted.
    pub fn open(store: &Path, public: &Path) -> Result<Self, Error> {
        let pins = PinDir::open(store, public)?;
        let _store_lock = StoreLock::acquire(store)?;
        if !is_group(store)? {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(SOURCE, store, "tmpfs", flags, Some(c"mode=0755"))
                .map_err(|e| Error::path("mount tmpfs on", store, e))?;
        }
        // Pins must not appear in the copies of this mount that other mount namespaces have.
        mount_change(store, MountPropagationFlags::PRIVATE).map_err(|e| Error::path("make private", store, e))?;
        Ok(Self { pins })
    }

    /// Returns the pins.
    #[must_use]
    pub fn pins(&self) -> &PinDir {
        &self.pins
    }

    /// Removes all pins of the group, their public links and the store. Returns how many there were. A repetition after an
    /// error or a crash removes what is left.
    ///
    /// # Errors
    /// The kernel's error, when a link, the store or its mounts could not be removed.
    pub fn delete(self) -> Result<usize, Error> {
        let store = self.pins.store();
        // Without the store another process deleted the group.
        let Some(_store_lock) = StoreLock::acquire(store)? else { return Ok(0) };
        let names = self.pins.list()?;
        for name in &names {
            self.pins.unpublish(name)?;
        }
        loop {
            match unmount(store, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) => (0..names.len()).for_each(|_| teardown::note(Instant::now())),
                // The path is not a mount point any longer.
                Err(Errno::INVAL | Errno::NOENT) => break,
                Err(e) => return Err(Error::path("unmount", store, e)),
            }
        }
        match fs::remove_dir(store) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::path("remove", store, error)),
            _ => Ok(names.len()),
        }
    }
}

/// Reports whether the tmpfs of a group is mounted on the store; it is an error if anything else is: `delete` unmounts it.
fn is_group(store: &Path) -> Result<bool, Error> {
    let fail = |e: Errno| Error::path("inspect", store, e);
    let parent = store.parent().unwrap_or(store);
    let mount_of = |path: &Path| {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::MNT_ID).map(|stat| stat.stx_mnt_id)
    };
    let mounted = mount_of(store).map_err(fail)?;
    if mounted == mount_of(parent).map_err(fail)? {
        return Ok(false);
    }
    let path = "/proc/thread-self/mountinfo";
    let mounts = fs::read_to_string(path).map_err(|e| Error::kernel("read", path, e))?;
    if mounts.lines().any(|line| is_tmpfs_of_a_group(line, mounted)) {
        return Ok(true);
    }
    let cause = io::Error::other("it is a mount point of another file system than the tmpfs of a group");
    Err(Error::path("open group of pins", store, cause))
}

/// Reports whether a line of /proc/self/mountinfo (proc_pid_mountinfo(5)) is that of a mount, and this one of a group.
fn is_tmpfs_of_a_group(line: &str, mount: u64) -> bool {
    let Some((before, after)) = line.split_once(" - ") else { return false };
    let id = before.split(' ').next().and_then(|id| id.parse().ok());
    id == Some(mount) && after.split(' ').take(2).eq(["tmpfs", SOURCE])
}

#[cfg(test)]
mod tests {
    use super::is_tmpfs_of_a_group;

    #[test]
    fn only_a_tmpfs_of_a_group_is_one() {
        let line = |kind, source| format!("77 30 0:52 / /run/netns/.store rw,nosuid - {kind} {source} rw,mode=755");
        assert!(is_tmpfs_of_a_group(&line("tmpfs", "netns"), 77));
        assert!(!is_tmpfs_of_a_group(&line("tmpfs", "netns"), 7));
        assert!(!is_tmpfs_of_a_group(&line("tmpfs", "tmpfs"), 77));
        assert!(!is_tmpfs_of_a_group(&line("proc", "netns"), 77));
        assert!(!is_tmpfs_of_a_group("77", 77));
    }
}
