//! Repair of a store while it is open. Layers that were lost are unpacked again from their blobs. After a reboot
//! without a clean close, layers and blobs are verified against their digests, those that containers use first.
//!
//! The first round starts some time after the opening, so that it does not delay the start, and a round reads for a
//! quarter of the time only. A later round retries only what failed: what was verified once is not read again. A
//! damaged layer that a container uses is replaced for new containers: see [`crate::superseded`].

use std::{
    collections::HashSet,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use rustix::{
    fd::AsFd,
    fs::{Mode, OFlags},
};
use tokio::runtime::Handle;

use crate::{
    Digest, Error, ErrorKind, Store,
    background::BackgroundThread,
    image::{CONFIG_MAX, parse_config},
    index::{Change, ImageRecord},
    progress::Listeners,
    pull::Source,
    recovery::layer_exists,
    single_flight::CancelToken,
    snapshot,
    store::Inner,
    tree_digest::{Pace, file_digest, tree_digest},
    unpack::lower_priority,
};

/// Time from the opening to the first round.
const FIRST_DELAY: Duration = Duration::from_secs(10);
/// First pause between rounds while something must be repaired. It doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(2);
/// Longest pause between rounds while something must be repaired.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Pause between rounds when nothing must be repaired.
const IDLE_PAUSE: Duration = Duration::from_secs(600);

/// Starts the repair thread. Without an async runtime lost layers are not unpacked again.
pub(crate) fn start(store: &Arc<Inner>) -> Result<(), Error> {
    let (wake, woken) = sync_channel(1);
    let (weak, runtime) = (Arc::downgrade(store), Handle::try_current().ok());
    thread::Builder::new()
        .name("image-keeper".into())
        .spawn(move || run(&weak, &woken, runtime.as_ref()))
        .map_err(|cause| Error::system(format!("start the thread that repairs the image store: {cause}")))?;
    let _ = store.repair_thread.set(BackgroundThread::new(wake));
    Ok(())
}

fn run(store: &Weak<Inner>, woken: &Receiver<()>, runtime: Option<&Handle>) {
    lower_priority();
    let (mut pause, mut retry) = (FIRST_DELAY, RETRY_MIN);
    loop {
        match woken.recv_timeout(pause) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
        }
        // One round serves all pending wake-ups.
        while woken.try_recv().is_ok() {}
        let Some(store) = store.upgrade() else { return };
        if store.repair(runtime, Pace::Background) {
            (pause, retry) = (IDLE_PAUSE, RETRY_MIN);
        } else {
            (pause, retry) = (retry, RETRY_MAX.min(retry * 2));
        }
    }
}

impl Store {
    /// Runs a round of the background repair now: verifies what a power cut may have damaged, and unpacks lost layers
    /// again. Returns whether nothing is left to repair.
    ///
    /// # Errors
    /// The thread cannot be started, or it panicked.
    pub async fn repair(&self) -> Result<bool, Error> {
        let (store, runtime) = (self.inner.clone(), Handle::current());
        let disk = store.disk.clone();
        disk.thread("image-repair", move || Ok(store.repair(Some(&runtime), Pace::Full))).await
    }
}

impl Inner {
    /// Runs one round. Returns whether nothing is left to repair.
    fn repair(self: &Arc<Self>, runtime: Option<&Handle>, pace: Pace) -> bool {
        let mut done = !snapshot::retry_unreadable(self);
        done &= self.retry_inaccessible();
        done &= self.remove_left_over();
        if self.state.lock().verify {
            done &= self.verify(pace);
        }
        self.release_superseded();
        let damaged = self.state.lock().damaged();
        for chain in damaged {
            done &= self.replace(&chain);
        }
        let incomplete: Vec<ImageRecord> =
            self.state.lock().incomplete.values().map(|image| image.record.clone()).collect();
        for image in incomplete {
            let Some(runtime) = runtime else { return false };
            let id = image.id.clone();
            match runtime.block_on(self.clone().unpack_again(image)) {
                Ok(()) => tracing::info!("image {id}: unpacked again from its blobs"),
                Err(error) => {
                    tracing::warn!("image {id}: unpack it again from its blobs: {error}; retrying");
                    done = false;
                }
            }
        }
        self.reserve.refill();
        done && self.state.lock().damaged().is_empty()
    }

    /// Retries to open the layers that could not be opened. Returns whether none of them is left.
    fn retry_inaccessible(&self) -> bool {
        let inaccessible: Vec<Digest> = self.state.lock().inaccessible.iter().cloned().collect();
        let mut done = true;
        for chain in inaccessible {
            match layer_exists(&self.layer_path(&chain)) {
                Ok(true) => drop(self.state.lock().inaccessible.remove(&chain)),
                Ok(false) => done &= self.replace(&chain),
                Err(_) => done = false,
            }
        }
        done
    }

    /// Verifies the layers, then the blobs, that were not verified yet. Returns whether all of them could be read.
    fn verify(self: &Arc<Self>, pace: Pace) -> bool {
        let mut done = true;
        for chain in self.layers_by_use() {
            if Arc::strong_count(self) == 1 {
                return false; // the store is being closed
            }
            let Some(record) = self.state.lock().layers.get(&chain).cloned().filter(|layer| !layer.damaged) else {
                continue;
            };
            let Some(expected) = record.digest else { continue };
            let path = self.layer_path(&chain);
            let open = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            match open.and_then(|directory| tree_digest(directory.as_fd(), pace)) {
                Ok(digest) if digest == expected => drop(self.state.lock().verified.layers.insert(chain)),
                Ok(_) => {
                    tracing::warn!("layer {chain}: its files changed since they were unpacked; unpacking it again");
                    done &= self.replace(&chain);
                }
                // The layer is still listed, so the disk failed: it is kept.
                Err(cause) if self.state.lock().layers.contains_key(&chain) => {
                    tracing::warn!("layer {chain}: verify its digest: {cause}; retrying");
                    done = false;
                }
                // It was removed in the meantime.
                Err(_) => {}
            }
        }
        done &= self.verify_blobs(pace);
        if done {
            self.state.lock().verify = false;
            let _writer = self.writer();
            let change = Change { meta: vec![("verify", "no".into())], ..Change::default() };
            done = self.commit(&change).inspect_err(|error| tracing::warn!("{error}")).is_ok();
        }
        done
    }

    /// Returns the layers that were not verified yet, those that containers use first.
    fn layers_by_use(&self) -> Vec<Digest> {
        let state = self.state.lock();
        let used = state.layers_in_snapshots();
        let unverified = state.layers.keys().filter(|chain| !state.verified.layers.contains(*chain));
        let mut all: Vec<Digest> = unverified.cloned().collect();
        all.sort_by_key(|chain| !used.contains(chain));
        all
    }

    fn verify_blobs(self: &Arc<Self>, pace: Pace) -> bool {
        let blobs: HashSet<Digest> = {
            let state = self.state.lock();
            state.blobs_in_use().difference(&state.verified.blobs).cloned().collect()
        };
        let mut done = true;
        for blob in blobs {
            if Arc::strong_count(self) == 1 {
                return false;
            }
            let path = self.content.path(&blob);
            match file_digest(&path, pace) {
                Ok(digest) if digest == blob => drop(self.state.lock().verified.blobs.insert(blob)),
                Ok(_) => {
                    tracing::warn!("blob {blob}: damaged on disk; removed, the next pull of its image fetches it");
                    let removed = self.content.discard_damaged(&blob);
                    done &= removed.inspect_err(|error| tracing::warn!("{error}")).is_ok();
                }
                Err(_) if self.content.size(&blob).is_none() => {}
                Err(error) => {
                    tracing::warn!("{error}; retrying");
                    done = false;
                }
            }
        }
        done
    }

    /// Hides the images of a damaged layer until it is unpacked again, and removes the layer. If a container uses the
    /// layer, its directory is kept until then. Returns whether this succeeded.
    fn replace(&self, chain: &Digest) -> bool {
        let _writer = self.writer();
        let (hidden, in_use) = {
            let mut state = self.state.lock();
            let in_use = !state.unreadable_snapshots.is_empty()
                || state.layers_in_snapshots().contains(chain)
                || state.leased(chain);
            let Some(record) = state.layers.get_mut(chain) else { return true };
            if in_use && record.damaged {
                return true;
            }
            record.damaged = true;
            let in_use = in_use.then(|| record.clone());
            state.inaccessible.remove(chain);
            state.verified.layers.remove(chain);
            if in_use.is_none() {
                state.layers.remove(chain);
            }
            (state.hide_images_with(chain), in_use)
        };
        let replaced = match in_use {
            Some(record) => {
                tracing::error!(
                    "layer {chain}: damaged and in use; its containers keep it, new containers get a new copy"
                );
                let put_layers = vec![(chain.clone(), record)];
                self.commit(&Change { put_images: hidden, put_layers, ..Change::default() })
            }
            None => self
                .commit(&Change { put_images: hidden, drop_layers: vec![chain.clone()], ..Change::default() })
                .and_then(|()| self.trash.remove(&self.layer_path(chain)))
                .and_then(|()| self.records.drop_layer(chain)),
        };
        replaced.inspect_err(|error| tracing::warn!("layer {chain}: {error}")).is_ok()
    }

    /// Unpacks the missing layers of an image from its blobs, and lists the image again.
    async fn unpack_again(self: Arc<Self>, image: ImageRecord) -> Result<(), Error> {
        let chains = image.layers.iter().map(|layer| layer.chain.clone());
        let lease = self.state.lease(chains.chain(image.blobs.iter().cloned()));
        let parsed = parse_config(&self.content.get(&image.id, CONFIG_MAX)?)?;
        let layers = image.layers.clone();
        if let Some(layer) = layers.iter().find(|layer| self.content.present(&layer.blob).is_none()) {
            return Err(Error::not_found(format!("blob {} is not in the store; pull the image again", layer.blob)));
        }
        let ready =
            match self.ensure_layers(&layers, &Source::Store, &Listeners::default(), &CancelToken::never()).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    let mut state = self.state.lock();
                    state.verify = true;
                    state.verified.blobs.retain(|blob| !image.blobs.contains(blob));
                    return Err(error);
                }
                ready => ready?,
            };
        let store = self.clone();
        self.disk
            .run_long(move || {
                store.list_again(image, parsed, &ready)?;
                drop(lease);
                Ok(())
            })
            .await
    }
}
