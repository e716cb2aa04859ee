//! Small files that survive a power cut intact: written to a temporary file, synced, renamed, and their directory
//! synced.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use crate::{Error, error::failed_to, hooks};

/// Replaces the file `path`, which is on disk when this returns.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    place(path, bytes)?;
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// Replaces the file `path`: its bytes are on disk when this returns, its name after a [`sync_directory`].
pub(crate) fn place(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    hooks::reached("file synced");
    let placed = written
        .map_err(failed_to("write", &new))
        .and_then(|()| fs::rename(&new, path).map_err(failed_to("rename to", path)));
    hooks::reached("file renamed");
    placed.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Syncs the directory `path`, so that the names in it are on disk.
pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    hooks::reached("directory synced");
    synced.map_err(failed_to("write to disk (fsync)", path))
}
