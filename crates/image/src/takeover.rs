//! A store that a process has open which never runs again and does not end: it was killed while a thread of it is held inside
//! the kernel, by a disk that hangs or by a container (splice(2)). Its locks would keep every other process out.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use crate::{Error, durable, error::at, store};

/// Makes the store in this directory free for [`crate::Store::open`]: the locked files are replaced by others of the same
/// content. The index is one of a process that was killed, as after any crash. Nothing is done where there is no store.
///
/// # Errors
/// Of the disk. The store stays as it was then, and locked.
pub fn take_over(dir: &Path) -> Result<(), Error> {
    let index = dir.join(store::INDEX);
    if let Some(bytes) = present(fs::read(&index)).map_err(at("read", &index))? {
        durable::replace(&index, &bytes)?;
    }
    let lock = dir.join(store::LOCK);
    present(fs::remove_file(&lock)).map_err(at("remove", &lock)).map(drop)
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
