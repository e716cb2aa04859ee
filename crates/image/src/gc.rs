//! Removal of images, and of what no one needs any more.
//!
//! The index comes first: a crash after its transaction leaves files that nothing lists, which the next opening removes.

use crate::{Digest, Error, index::Change, store::Inner};

impl Inner {
    pub(crate) fn remove_image(&self, id: &Digest) -> Result<(), Error> {
        let writer = self.writer();
        let names: Vec<String> = {
            let state = self.state.lock();
            let (tags, digests) = state.names_of(id);
            tags.into_iter().chain(digests).collect()
        };
        self.index().apply(&Change {
            drop_names: names.clone(),
            drop_images: vec![id.clone()],
            ..Change::default()
        })?;
        let mut state = self.state.lock();
        names.iter().for_each(|name| drop(state.names.remove(name)));
        state.images.remove(id);
        drop(state);
        drop(writer);
        self.collect()
    }

    /// Whether the image keeps another tag without this one.
    pub(crate) fn is_one_of_several(&self, tag: &str, id: &Digest) -> bool {
        let (tags, _) = self.state.lock().names_of(id);
        tags.len() > 1 && tags.iter().any(|known| known == tag)
    }

    pub(crate) fn remove_tag(&self, tag: &str) -> Result<(), Error> {
        let _writer = self.writer();
        self.index().apply(&Change { drop_names: vec![tag.to_owned()], ..Change::default() })?;
        self.state.lock().names.remove(tag);
        Ok(())
    }

    /// Frees layers and blobs that no image, snapshot or running operation needs.
    pub(crate) fn collect(&self) -> Result<(), Error> {
        let _writer = self.writer();
        let blobs = self.content.list()?;
        let dead: Vec<Digest> = {
            let mut state = self.state.lock();
            let used = state.layers_in_use();
            let dead = state.layers.keys().filter(|chain| !used.contains(chain) && !state.leased(chain));
            let dead: Vec<_> = dead.cloned().collect();
            dead.iter().for_each(|chain| drop(state.layers.remove(chain)));
            let used = state.blobs_in_use();
            // Under the lock: who leases a blob now finds it, or finds it gone.
            blobs
                .iter()
                .filter(|blob| !used.contains(blob) && !state.leased(blob))
                .for_each(|blob| self.content.remove(blob));
            dead
        };
        if dead.is_empty() {
            return Ok(());
        }
        self.figures.collected.add(dead.len() as u64);
        self.index().apply(&Change { drop_layers: dead.clone(), ..Change::default() })?;
        dead.iter().try_for_each(|chain| self.trash.take(&self.layer_path(chain)))
    }
}
