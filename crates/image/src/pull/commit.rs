//! An image becomes visible: whole, on disk, with all of its layers, in one step.
//!
//! The step is one `syncfs` and one transaction, however many layers there are.

use std::fs;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::layer::{Folder, Ready, Scratch, open_folder};
use crate::{
    Digest, Error, Image,
    error::at,
    image::Parsed,
    index::{Change, Form, ImageRecord, LayerRecord},
    state::Known,
    store::Inner,
    unpack::{Attributes, set_attributes},
    usage::measure,
};

/// A layer of an image that is about to be listed.
pub(crate) type Layered = (Digest, Ready);

impl Inner {
    /// Finishes an unpacked layer. Folders that its archive only implies get the attributes that they have below, because
    /// overlayfs shows those of the upper one. `lower` is lowest first.
    pub(super) fn settle(&self, scratch: Scratch, implied: &[Vec<u8>], lower: &[Layered]) -> Result<Folder, Error> {
        let root = open_folder(&scratch.0)?;
        let below: Result<Vec<OwnedFd>, Error> =
            lower.iter().rev().map(|(chain, ready)| self.open_layer(chain, ready)).collect();
        let below = below?;
        for path in implied {
            let like = below.iter().find_map(|layer| attributes(layer, path)).flatten();
            let like = like.unwrap_or(Attributes { mode: 0o755, ..Attributes::default() });
            let shown = String::from_utf8_lossy(path);
            let own = open_at(&root, path).map_err(|cause| Error::system(format!("{shown}: open: {cause}")))?;
            set_attributes(own.as_fd(), path, &like, u32::MAX)?;
        }
        let measured = measure(root.as_fd()).map_err(at("measure", &scratch.0))?;
        Ok(Folder { scratch, usage: measured.usage, length: measured.length })
    }

    /// Another pull may have made it visible meanwhile.
    fn open_layer(&self, chain: &Digest, ready: &Ready) -> Result<OwnedFd, Error> {
        match ready {
            Ready::Unpacked(folder) => open_folder(&folder.scratch.0).or_else(|_| open_folder(&self.layer_path(chain))),
            Ready::Listed => open_folder(&self.layer_path(chain)),
        }
    }

    /// Makes an image and its new layers (all of its layers, lowest first) visible, at once: their data first, then their
    /// names, then one transaction. Blocks.
    pub(crate) fn list_image(
        &self,
        mut record: ImageRecord,
        parsed: Parsed,
        names: Vec<String>,
        layers: Vec<Layered>,
    ) -> Result<Image, Error> {
        self.pulls.sync.sync(&self.root)?;
        let _writer = self.writer();
        let id = record.id.clone();
        if let Some(known) = self.state.lock().images.get(&id) {
            record.blobs.extend(known.record.blobs.iter().cloned());
        }
        let new = self.name_layers(&layers)?;
        self.index().apply(&Change {
            put_names: names.iter().map(|name| (name.clone(), id.clone())).collect(),
            put_images: vec![record.clone()],
            put_layers: new.clone(),
            ..Change::default()
        })?;
        let mut state = self.state.lock();
        state.layers.extend(new);
        state.incomplete.remove(&id);
        names.into_iter().for_each(|name| drop(state.names.insert(name, id.clone())));
        let known = Known { record: record.into(), config: parsed.config.into(), raw: parsed.raw.into() };
        state.images.insert(id.clone(), known);
        state.image(&id).ok_or_else(|| Error::system("the image vanished"))
    }

    /// Renames unpacked layers to their places. The caller holds the writer's lock.
    fn name_layers(&self, layers: &[Layered]) -> Result<Vec<(Digest, LayerRecord)>, Error> {
        let mut new = Vec::new();
        let mut parent = None;
        for (chain, ready) in layers {
            if let Ready::Unpacked(folder) = ready
                && !self.state.lock().layers.contains_key(chain)
            {
                let path = self.layer_path(chain);
                // A leftover that nothing lists.
                self.trash.take(&path)?;
                fs::rename(&folder.scratch.0, &path).map_err(at("rename to", &path))?;
                let record = LayerRecord {
                    parent: parent.clone(),
                    form: Form::Directory,
                    usage: folder.usage,
                    length: folder.length,
                };
                new.push((chain.clone(), record));
            }
            parent = Some(chain.clone());
        }
        Ok(new)
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
