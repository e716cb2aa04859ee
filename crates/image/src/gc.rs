//! Removal of images, and garbage collection of layers and blobs.
//!
//! The index is changed first: a crash after its transaction leaves files that are not listed, which the next opening
//! removes. No file is accessed while the state is locked. A removal needs no free space on the disk, or takes it from
//! the reserve.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use crate::{
    Digest, Error, Store,
    index::{Change, ImageRecord, LayerRecord},
    store::Inner,
};

impl Store {
    /// Removes an image, given by any of its names, with all of its tags. Succeeds for unknown names. Layers that a
    /// container uses are kept until the container is removed.
    ///
    /// # Errors
    /// The name is not valid or ambiguous, or the disk failed.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let Some(id) = self.inner.resolve_hidden(name)? else { return Ok(()) };
        let inner = self.inner.clone();
        let disk = inner.disk.clone();
        disk.run_long(move || inner.remove_image(&id)).await
    }

    /// Removes one tag of an image, and with its last tag the image. Given a digest or an id it removes the image, as
    /// [`Store::remove`].
    ///
    /// # Errors
    /// See [`Store::remove`].
    pub async fn untag(&self, name: &str) -> Result<(), Error> {
        let Some(id) = self.inner.resolve_hidden(name)? else { return Ok(()) };
        let tag = self.inner.reference(name).ok().filter(|reference| reference.digest().is_none());
        let tag = tag.and_then(|reference| reference.tagged());
        let inner = self.inner.clone();
        let disk = inner.disk.clone();
        disk.run_long(move || match tag.filter(|tag| inner.is_one_of_several(tag, &id)) {
            Some(tag) => inner.remove_tag(&tag),
            None => inner.remove_image(&id),
        })
        .await
    }
}

impl Inner {
    /// Applies a change to the index. The caller holds the writer lock.
    pub(crate) fn commit(&self, change: &Change) -> Result<(), Error> {
        let contents = || self.state.lock().index_contents();
        match self.index.apply(change, contents) {
            Err(_) if change.only_removes() && self.reserve.release() => self.index.apply(change, contents),
            other => other,
        }
    }

    /// Removes an image by its id, with all of its names.
    pub(crate) fn remove_image(&self, id: &Digest) -> Result<(), Error> {
        let writer = self.writer();
        let names: Vec<String> = {
            let state = self.state.lock();
            let (tags, digests) = state.names_of(id);
            tags.into_iter().chain(digests).collect()
        };
        self.commit(&Change { drop_names: names.clone(), drop_images: vec![id.clone()], ..Change::default() })?;
        {
            let mut state = self.state.lock();
            names.iter().for_each(|name| drop(state.names.remove(name)));
            state.images.remove(id);
            state.incomplete.remove(id);
        }
        let dropped = self.records.drop_image(id).and_then(|()| self.records.sync());
        drop(writer);
        if dropped.is_err() {
            self.remove_later();
        }
        self.collect().and(dropped)
    }

    /// Whether the image has this tag and at least one other.
    pub(crate) fn is_one_of_several(&self, tag: &str, id: &Digest) -> bool {
        let (tags, _) = self.state.lock().names_of(id);
        tags.len() > 1 && tags.iter().any(|known| known == tag)
    }

    pub(crate) fn remove_tag(&self, tag: &str) -> Result<(), Error> {
        let _writer = self.writer();
        self.commit(&Change { drop_names: vec![tag.to_owned()], ..Change::default() })?;
        let owner = {
            let mut state = self.state.lock();
            let hidden = state.hidden(tag).cloned();
            if let Some(image) = hidden.as_ref().and_then(|id| state.incomplete.get_mut(id)) {
                image.names.retain(|name| name != tag);
            }
            state.names.remove(tag).or(hidden)
        };
        match owner {
            None => Ok(()),
            Some(id) => self.write_names([&id]),
        }
    }

    /// Writes the records of images whose names changed. The caller holds the writer lock.
    pub(crate) fn write_names<'a>(&self, ids: impl IntoIterator<Item = &'a Digest>) -> Result<(), Error> {
        for id in ids {
            let image = {
                let state = self.state.lock();
                let (tags, digests) = state.names_of(id);
                let names: Vec<String> = tags.into_iter().chain(digests).collect();
                let visible = state.images.get(id).map(|known| (*known.record).clone());
                visible.or_else(|| Some(state.incomplete.get(id)?.record.clone())).map(|record| (record, names))
            };
            if let Some((record, names)) = image {
                let put = self.records.put_image(&record, names.clone());
                let full = put.is_err() && self.reserve.release();
                if full { self.records.put_image(&record, names)? } else { put? }
            }
        }
        self.records.sync()
    }

    /// Queues a collection, which waits for the writer lock and for many removals. If the store is closed before it
    /// runs, the next opening collects.
    pub(crate) fn collect_later(self: &Arc<Self>) {
        if self.collection_is_queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let store = Arc::downgrade(self);
        let queued = self.disk.start_long(move || {
            let Some(store) = store.upgrade() else { return };
            store.collection_is_queued.store(false, Ordering::SeqCst);
            if let Err(error) = store.collect() {
                tracing::warn!("collect unused layers and blobs: {error}; retrying in the background");
            }
        });
        if let Err(error) = queued {
            self.collection_is_queued.store(false, Ordering::SeqCst);
            tracing::warn!("collect unused layers and blobs: {error}; retrying with the next removal");
        }
    }

    /// Removes layers and blobs that no image, snapshot or running operation needs. If a blob or a record cannot be
    /// removed, this is retried in the background; if the directory of a layer cannot, at the next opening.
    pub(crate) fn collect(&self) -> Result<(), Error> {
        let collected = {
            let _writer = self.writer();
            self.collect_once()
        };
        if collected.is_err() {
            self.remove_later();
        }
        collected
    }

    /// Makes the background thread start a round now that removes what is left over.
    fn remove_later(&self) {
        self.left_over.store(true, Ordering::SeqCst);
        self.wake_repair();
    }

    /// Removes what was left over after earlier errors: records that the index does not list, unused blobs, and unused
    /// layers that the index still lists. Returns whether this succeeded.
    pub(crate) fn remove_left_over(&self) -> bool {
        if !self.left_over.swap(false, Ordering::SeqCst) {
            return true;
        }
        let _writer = self.writer();
        let contents = {
            let state = self.state.lock();
            state.complete.then(|| state.index_contents())
        };
        let Some(contents) = contents else { return true };
        let removed = self.records.reconcile(&contents).and_then(|()| self.collect_once());
        if let Err(error) = &removed {
            tracing::warn!("collect unused layers and blobs: {error}; retrying");
            self.left_over.store(true, Ordering::SeqCst);
        }
        removed.is_ok()
    }

    /// Collects once. The caller holds the writer lock.
    fn collect_once(&self) -> Result<(), Error> {
        if !self.state.lock().complete {
            return Ok(());
        }
        let blobs = self.collect_blobs();
        let unused: BTreeMap<Digest, LayerRecord> = {
            let mut state = self.state.lock();
            let used = state.layers_in_use();
            let layers = state.layers.iter().filter(|(chain, _)| !used.contains(chain) && !state.leased(chain));
            let unused: BTreeMap<_, _> = layers.map(|(chain, layer)| (chain.clone(), layer.clone())).collect();
            unused.keys().for_each(|chain| drop(state.layers.remove(chain)));
            unused
        };
        if unused.is_empty() {
            return blobs;
        }
        self.commit(&Change { drop_layers: unused.keys().cloned().collect(), ..Change::default() }).inspect_err(
            |_| {
                // The index still lists them.
                self.state.lock().layers.extend(unused.clone());
            },
        )?;
        self.metrics.layers_collected.add(unused.len() as u64);
        // The index lists none of them any longer, so an error with one must not prevent the removal of the others.
        let removed = unused.keys().map(|chain| self.remove_layer(chain)).fold(Ok(()), Result::and);
        removed.and(self.records.sync()).and(blobs)
    }

    /// Removes the directory and the record of a layer that the index does not list.
    fn remove_layer(&self, chain: &Digest) -> Result<(), Error> {
        let path = self.layer_path(chain);
        let removed = match self.trash.remove(&path) {
            // The rename may need a free block for the new name.
            Err(_) if self.reserve.release() => self.trash.remove(&path),
            result => result,
        };
        removed.and(self.records.drop_layer(chain))
    }

    fn collect_blobs(&self) -> Result<(), Error> {
        let blobs = self.content.list()?;
        let unused: Vec<Digest> = {
            let state = self.state.lock();
            let used = state.blobs_in_use();
            blobs.into_iter().filter(|blob| !used.contains(blob) && !state.leased(blob)).collect()
        };
        let mut removed = Ok(());
        for blob in unused {
            // An operation that leases the blob in the meantime finds it, or waits until it is removed: see
            // `Content::present`.
            let one = self.content.remove_unless(&blob, || {
                let state = self.state.lock();
                state.leased(&blob) || state.blobs_in_use().contains(&blob)
            });
            removed = removed.and(one);
        }
        removed
    }

    /// Returns the other images that have one of these names now, each with the names that it keeps.
    pub(crate) fn losing_names(&self, names: &[String], id: &Digest) -> HashMap<Digest, (ImageRecord, Vec<String>)> {
        let state = self.state.lock();
        let owners = names.iter().filter_map(|name| state.names.get(name)).filter(|owner| *owner != id);
        let mut losing = HashMap::new();
        for owner in owners {
            let Some(known) = state.images.get(owner) else { continue };
            let (tags, digests) = state.names_of(owner);
            let remaining = tags.into_iter().chain(digests).filter(|name| !names.contains(name)).collect();
            losing.insert(owner.clone(), ((*known.record).clone(), remaining));
        }
        losing
    }
}
