//! Damaged layers that containers use: they are replaced at once for new containers, and kept for containers that are
//! mounted on them.
//!
//! A mounted overlay refers to the inodes of its layers, whatever their names. The intact directory takes the place of
//! the damaged one with `renameat2(RENAME_EXCHANGE)`, and the damaged one stays as `layers/<chain>.damaged-<n>` until
//! the snapshots that may be mounted on it are removed. A snapshot that is mounted later uses the intact one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{Digest, Error, error::failed_to, hooks, index::LayerRecord, state::SupersededLayer, store::Inner};

/// Separates the name of the layer and a number.
const SUFFIX: &str = ".damaged-";

impl Inner {
    /// Replaces a damaged layer by `new`. The caller holds the writer lock.
    ///
    /// # Errors
    /// The replacement failed. The layer is unchanged, and `new` has its old name.
    pub(crate) fn supersede(&self, chain: &Digest, new: &Path, record: &LayerRecord) -> Result<(), Error> {
        let path = self.layer_path(chain);
        if !self.state.lock().unreadable_snapshots.is_empty() {
            let reason = "the record of a snapshot cannot be read, and it may use the layer";
            return Err(Error::system(format!("replace {}: {reason}; retrying", path.display())));
        }
        let damaged_path = self.rename_to_damaged_path(chain, new)?;
        let exchanged = match renameat_with(CWD, &damaged_path, CWD, &path, RenameFlags::EXCHANGE) {
            // The directory itself is missing.
            Err(Errno::NOENT) => renameat_with(CWD, &damaged_path, CWD, &path, RenameFlags::NOREPLACE),
            exchanged => exchanged,
        };
        if let Err(cause) = exchanged {
            let _ = fs::rename(&damaged_path, new);
            return Err(failed_to("replace", &path)(cause));
        }
        hooks::reached("layer exchanged");
        let mut state = self.state.lock();
        // Read after the exchange: what is mounted from now on uses the new directory.
        let keys = state.users_of(chain);
        state.layers.insert(chain.clone(), record.clone());
        state.superseded.push(SupersededLayer { path: damaged_path, keys });
        drop(state);
        self.release_superseded();
        Ok(())
    }

    fn rename_to_damaged_path(&self, chain: &Digest, new: &Path) -> Result<PathBuf, Error> {
        let path = self.layer_path(chain);
        for number in 0_u64.. {
            let damaged_path = path.with_file_name(format!("{}{SUFFIX}{number}", chain.hex()));
            match renameat_with(CWD, new, CWD, &damaged_path, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(damaged_path),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(failed_to("rename", new)(cause)),
            }
        }
        Err(Error::system(format!("replace {}: no name is free for the damaged directory", path.display())))
    }

    /// Removes damaged directories that no snapshot can be mounted on any longer.
    pub(crate) fn release_superseded(&self) {
        let released: Vec<PathBuf> = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.superseded);
            let (used, released): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|old| old.keys.iter().any(|key| state.snapshots.contains_key(key)));
            state.superseded = used;
            released.into_iter().map(|old| old.path).collect()
        };
        for path in released {
            if let Err(error) = self.trash.remove(&path) {
                tracing::warn!("{error}; retrying at the next start");
            }
        }
    }

    /// Keeps `path` in `layers/` if it is a damaged directory on which a snapshot of this boot may be mounted. Returns
    /// whether it is kept.
    pub(crate) fn keep_superseded(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(Ok(chain)) = name.split_once(SUFFIX).map(|(hex, _)| Digest::from_hex(hex)) else { return false };
        let mut state = self.state.lock();
        let keys = state.users_of(&chain);
        let used = !keys.is_empty();
        if used {
            state.superseded.push(SupersededLayer { path: path.to_owned(), keys });
        }
        used
    }
}
