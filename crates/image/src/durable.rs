//! Small files that survive a power cut whole: written next to their place, put on disk, renamed, their directory put
//! on disk.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use crate::{Error, error::at, hooks};

/// Replaces the file `path`. On disk when this returns.
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
    let placed =
        written.map_err(at("write", &new)).and_then(|()| fs::rename(&new, path).map_err(at("rename to", path)));
    hooks::reached("file renamed");
    placed.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Puts the names in the directory `path` on disk.
pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    hooks::reached("directory synced");
    synced.map_err(at("write to disk (fsync)", path))
}
