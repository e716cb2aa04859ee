//! An unpacked layer becomes visible: whole, on disk, and with the layers below it there.

use std::fs;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::layer::{Scratch, open_folder};
use crate::{
    Digest, Error,
    error::at,
    index::{Change, Form, LayerRecord},
    store::Inner,
    unpack::{Attributes, Unpacked, set_attributes},
    usage::measure,
};

impl Inner {
    /// Blocks. `parent` is listed already.
    pub(super) fn commit_layer(
        &self,
        chain: &Digest,
        parent: Option<Digest>,
        folder: Scratch,
        unpacked: &Unpacked,
    ) -> Result<(), Error> {
        let root = open_folder(&folder.0)?;
        self.settle_implied(&root, parent.as_ref(), &unpacked.implied)?;
        // Before it is measured: only then are blocks allocated.
        self.pulls.sync.sync(&self.root)?;
        let measured = measure(root.as_fd()).map_err(at("measure", &folder.0))?;
        let record = LayerRecord { parent, form: Form::Directory, usage: measured.usage, length: measured.length };
        let _writer = self.writer();
        if self.state.lock().layers.contains_key(chain) {
            return Ok(());
        }
        let path = self.layer_path(chain);
        // A leftover that nothing lists.
        self.trash.take(&path)?;
        fs::rename(&folder.0, &path).map_err(at("rename to", &path))?;
        self.index().apply(&Change { put_layers: vec![(chain.clone(), record.clone())], ..Change::default() })?;
        self.state.lock().layers.insert(chain.clone(), record);
        Ok(())
    }

    /// Folders that the archive only implies have the attributes that they have below: overlayfs shows the upper ones.
    fn settle_implied(&self, root: &OwnedFd, parent: Option<&Digest>, implied: &[Vec<u8>]) -> Result<(), Error> {
        let chain =
            self.state.lock().chain(parent).map_err(|layer| Error::corrupt(format!("layer {layer} is gone")))?;
        let below: Result<Vec<OwnedFd>, Error> =
            chain.iter().rev().map(|layer| open_folder(&self.layer_path(layer))).collect();
        let below = below?;
        for path in implied {
            let like = below.iter().find_map(|layer| attributes(layer, path)).flatten();
            let like = like.unwrap_or(Attributes { mode: 0o755, ..Attributes::default() });
            let shown = String::from_utf8_lossy(path);
            let own = open_at(root, path).map_err(|cause| Error::system(format!("{shown}: open: {cause}")))?;
            set_attributes(own.as_fd(), path, &like, u32::MAX)?;
        }
        Ok(())
    }
}

fn open_at(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, if path.is_empty() { b"." } else { path }, flags, Mode::empty(), resolve)
}

/// What a layer says of a path: nothing (`None`), that it is no folder (`Some(None)`), or its attributes.
fn attributes(layer: &OwnedFd, path: &[u8]) -> Option<Option<Attributes>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = if path.is_empty() { b"." } else { path };
    let found = match rustix::fs::openat2(layer, at, flags, Mode::empty(), resolve) {
        Ok(found) => found,
        Err(Errno::NOENT) => return None,
        Err(_) => return Some(None),
    };
    let stat = rustix::fs::statat(&found, c"", AtFlags::EMPTY_PATH).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Some(None);
    }
    Some(Some(Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        xattrs: Vec::new(),
    }))
}
