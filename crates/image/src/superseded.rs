//! Damaged layers that containers use: replaced at once for new containers, kept for those that are mounted on them.
//!
//! An overlay holds the inodes of its layers, whatever their names: the right directory takes the place of the damaged
//! one with `renameat2(RENAME_EXCHANGE)`, and the damaged one stays as `layers/<chain>.damaged-<n>` until the snapshots
//! that may be mounted on it are gone. A snapshot that is mounted later gets the right one.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{Digest, Error, error::at, hooks, index::LayerRecord, store::Inner};

/// Between the name of the layer and a number.
const SUFFIX: &str = ".damaged-";

/// A damaged directory that was replaced.
#[derive(Debug)]
pub(crate) struct Superseded {
    path: PathBuf,
    /// Snapshots that may be mounted on it.
    keys: HashSet<String>,
}

impl Inner {
    /// Puts `new` in the place of a damaged layer. The caller holds the writer's lock.
    ///
    /// # Errors
    /// The layer is what it was before, and `new` has its old name.
    pub(crate) fn supersede(&self, chain: &Digest, new: &Path, record: &LayerRecord) -> Result<(), Error> {
        let path = self.layer_path(chain);
        if !self.state.lock().unreadable.is_empty() {
            let why = "the record of a snapshot cannot be read, and it may use the layer";
            return Err(Error::system(format!("replace {}: {why}; retrying", path.display())));
        }
        let aside = self.rename_aside(chain, new)?;
        let exchanged = match renameat_with(CWD, &aside, CWD, &path, RenameFlags::EXCHANGE) {
            // The directory itself was lost.
            Err(Errno::NOENT) => renameat_with(CWD, &aside, CWD, &path, RenameFlags::NOREPLACE),
            exchanged => exchanged,
        };
        if let Err(cause) = exchanged {
            let _ = fs::rename(&aside, new);
            return Err(at("replace", &path)(cause));
        }
        hooks::reached("layer exchanged");
        let mut state = self.state.lock();
        // After the exchange: what is mounted from here on has the new one.
        let keys = state.users_of(chain);
        state.layers.insert(chain.clone(), record.clone());
        state.superseded.push(Superseded { path: aside, keys });
        drop(state);
        self.release_superseded();
        Ok(())
    }

    fn rename_aside(&self, chain: &Digest, new: &Path) -> Result<PathBuf, Error> {
        let path = self.layer_path(chain);
        for number in 0_u64.. {
            let aside = path.with_file_name(format!("{}{SUFFIX}{number}", chain.hex()));
            match renameat_with(CWD, new, CWD, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(aside),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(at("rename", new)(cause)),
            }
        }
        Err(Error::system(format!("replace {}: no name is free next to it", path.display())))
    }

    /// Removes damaged directories that no snapshot can be mounted on any longer.
    pub(crate) fn release_superseded(&self) {
        let released: Vec<PathBuf> = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.superseded);
            let (kept, released): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|old| old.keys.iter().any(|key| state.snapshots.contains_key(key)));
            state.superseded = kept;
            released.into_iter().map(|old| old.path).collect()
        };
        for path in released {
            if let Err(error) = self.trash.take(&path) {
                tracing::warn!("{error}; retrying at the next start");
            }
        }
    }

    /// Whether `path` in `layers/` is such a directory, which is kept then for as long as a snapshot of this boot may
    /// be mounted on it.
    pub(crate) fn keep_superseded(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(Ok(chain)) = name.split_once(SUFFIX).map(|(hex, _)| Digest::from_hex(hex)) else { return false };
        let mut state = self.state.lock();
        let keys = state.users_of(&chain);
        let used = !keys.is_empty();
        if used {
            state.superseded.push(Superseded { path: path.to_owned(), keys });
        }
        used
    }
}
