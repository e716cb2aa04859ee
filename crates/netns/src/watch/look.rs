//! A look at one pin: what it is now.

use std::{fs, io, path::Path};

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, StatxFlags, statx},
    io::Errno,
};

use super::Pin;
use crate::{Error, Namespace, namespace::open_nsfs};

/// How often a link without a namespace behind it is looked at; longer, it is one of another program.
const LOOKS_MAX: usize = 16;

/// Returns what a pin is now; `None` if it does not exist.
///
/// A pin of this crate is a link to a file that a namespace is mounted on. If the link was read just before the pin was
/// removed, the file without its namespace may be found; then the link does not exist anymore, or is that of the next pin.
pub(super) fn look(path: &Path) -> Result<Option<Pin>, Error> {
    let mut found = look_once(path)?;
    for _ in 0..LOOKS_MAX {
        if !matches!(found, Some(Pin::Unready { .. })) {
            break;
        }
        match fs::read_link(path) {
            Ok(_) => found = look_once(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A file of a program like ip(8).
            Err(_) => break,
        }
    }
    Ok(found)
}

/// Opens a pin by its path: ip(8) mounts the directory on itself before it creates its first pin, and a descriptor of the
/// directory below does not show the mounts of the one above.
fn look_once(path: &Path) -> Result<Option<Pin>, Error> {
    let unready = Ok(Some(Pin::Unready { announced: false }));
    let file = match open_nsfs(path) {
        Ok(Some(file)) => file,
        Ok(None) => return unready,
        Err(error) => {
            return match error.errno() {
                // A link to nothing, too: a pin that is being removed.
                Some(Errno::NOENT | Errno::STALE) => Ok(None),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
                _ => unready,
            };
        }
    };
    let mount = unique_mount_id(&file);
    match Namespace::from_fd(file) {
        Ok(namespace) => Ok(Some(Pin::Ready { id: namespace.id()?, mount })),
        Err(_) => unready,
    }
}

/// Returns the id of the mount that a file is on, which is not reused until the next boot (Linux 6.8).
fn unique_mount_id(file: &OwnedFd) -> Option<u64> {
    const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let stat = statx(file, "", AtFlags::EMPTY_PATH, STATX_MNT_ID_UNIQUE).ok()?;
    (stat.stx_mask & STATX_MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id)
}
