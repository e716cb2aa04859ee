use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    Error, Group,
    tree::{Tree, child_names},
    wait::Wait,
};

/// How long killed processes may take to be gone.
const REMOVE_SECONDS: u64 = 5;

impl Group {
    /// rmdir of all groups below and of itself, in every tree. A group that is not there is fine. Processes that were
    /// killed just now are waited for, at most 5 s; one that lives on is an error that names it, and the group stays.
    /// One of a systemd unit is ended by systemd first.
    pub fn remove(self) -> Result<(), Error> {
        if let Some(unit) = self.unit.as_ref().filter(|_| self.sub.is_none()) {
            unit.stop()?;
        }
        let mut wait = None;
        for tree in self.own_trees() {
            let path = self.place(tree).relative();
            loop {
                if let Some(wait) = &wait {
                    Wait::arm(wait);
                }
                match remove_below(tree, path) {
                    Ok(()) => break,
                    Err(Errno::BUSY) => {}
                    Err(errno) => return Err(Error::io("rmdir", tree.describe(path), errno)),
                }
                // The first time at once: opening the file to wait on takes as long as most processes need to go.
                match &mut wait {
                    None => wait = Some(Wait::new(&self, REMOVE_SECONDS)),
                    Some(wait) => {
                        if !wait.next() {
                            return Err(self.still_used(tree));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn still_used(&self, tree: &Tree) -> Error {
        let path = tree.describe(self.place(tree).relative());
        Error::Late { operation: "remove", path, seconds: REMOVE_SECONDS, detail: self.first_process() }
    }
}

/// Removes a group and all below it, however deep a container nested its own, with two descriptors at a time.
fn remove_below(tree: &Tree, path: &str) -> Result<(), Errno> {
    loop {
        match tree.rmdir(path) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY | Errno::NOTEMPTY) => {}
            Err(errno) => return Err(errno),
        }
        let mut at = match tree.open_dir(path) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let mut removed = false;
        while let Some(deeper) = remove_children(&at, &mut removed)? {
            at = deeper;
        }
        if !removed {
            return Err(Errno::BUSY);
        }
    }
}

/// Removes the groups right below that can be; gives one that cannot, to go on there.
fn remove_children(dir: &OwnedFd, removed: &mut bool) -> Result<Option<OwnedFd>, Errno> {
    let mut busy = None;
    for name in child_names(dir)? {
        match rustix::fs::unlinkat(dir, name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => *removed = true,
            Err(Errno::BUSY | Errno::NOTEMPTY) => busy = Some(name),
            Err(errno) => return Err(errno),
        }
    }
    let Some(name) = busy else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(dir, name.as_str(), flags, Mode::empty()) {
        Ok(deeper) => Ok(Some(deeper)),
        Err(Errno::NOENT) => {
            *removed = true;
            Ok(None)
        }
        Err(errno) => Err(errno),
    }
}
