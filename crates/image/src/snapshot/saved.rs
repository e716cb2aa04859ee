//! The contents of a writable layer from an archive: the layer that a container had when it was saved.

use std::io::Read;

use rustix::fs::{Mode, OFlags};

use super::check_key;
use crate::{Error, Store, single_flight::CancelToken, unpack::unpack};

impl Store {
    /// Unpacks an archive in the format of image layers into the writable layer of a container, which must be new and not
    /// mounted. The archive is not trusted. Blocks.
    ///
    /// # Errors
    /// The layer does not exist, the archive is invalid or larger than a layer may be, or the disk failed. What was unpacked
    /// stays; the caller discards the layer.
    pub fn unpack_changes(&self, key: &str, archive: impl Read + Send) -> Result<(), Error> {
        let name = |error: Error| error.during(format!("unpack the changes of snapshot {key}"));
        check_key(key).map_err(name)?;
        if !self.inner.state.lock().snapshots.contains_key(key) {
            return Err(name(Error::not_found("it does not exist; prepare it first")));
        }
        let upper = self.upper(key);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(&upper, flags, Mode::empty());
        let root = root.map_err(|cause| name(Error::system(format!("open {}: {cause}", upper.display()))))?;
        unpack(archive, root, self.inner.limits(), &CancelToken::never()).map(drop).map_err(name)
    }
}
