//! The configuration that a pod was attached with, in a file named after its container.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use serde_json::{Map, Value};

use crate::Error;

/// Longest file that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Writes the configuration.
pub(super) fn write(directory: &Path, container: &str, config: &Map<String, Value>) -> Result<(), Error> {
    let path = directory.join(container);
    let text = serde_json::to_vec(config).map_err(|e| Error::path("write", &path, io::Error::from(e)))?;
    let write = || {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // A name that no container has.
        let new = directory.join(format!(".{container}"));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(|e: io::Error| Error::path("write", &path, e))
}

/// Reads the configuration; `None` if there is none. One that is damaged is removed: nothing can be concluded from it.
pub(super) fn read(directory: &Path, container: &str) -> Result<Option<Map<String, Value>>, Error> {
    let path = directory.join(container);
    let mut text = Vec::new();
    match File::open(&path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut text)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::path("read", &path, e)),
        Ok(_) => match serde_json::from_slice(&text) {
            Ok(config) => Ok(Some(config)),
            Err(_) => remove(directory, container).map(|()| None),
        },
    }
}

/// Removes the configuration.
pub(super) fn remove(directory: &Path, container: &str) -> Result<(), Error> {
    let path = directory.join(container);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::path("remove", &path, e)),
        _ => Ok(()),
    }
}
