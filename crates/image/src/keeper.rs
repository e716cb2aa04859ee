//! What a store repairs while it is open: layers that were lost are unpacked again from their blobs; after a boot that
//! the store was not closed for, layers and blobs are compared with their digests, those of containers first.
//!
//! A round begins some time after the opening, so that it delays no start, and reads for a quarter of the time only.
//! What fails is tried again in a later round, and nothing else: what was once compared is not read again. A damaged
//! layer that a container uses is replaced next to it: see [`crate::superseded`].

use std::{
    collections::HashSet,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
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
    flight::Cancel,
    image::parse_config,
    index::{Change, ImageRecord},
    progress::Listeners,
    pull::Source,
    recovery::{CONFIG_MAX, layer_exists},
    snapshot,
    store::Inner,
    tree_digest::{Pace, file_digest, tree_digest},
    unpack::step_back,
};

/// From the opening to the first round.
const FIRST: Duration = Duration::from_secs(10);
/// Between rounds while something is to be repaired: at first, and at most; and otherwise.
const AGAIN: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(600);

/// Wakes the thread, and ends it when it is dropped with the store.
pub(crate) struct Keeper(Sender<()>);

/// Starts the thread. Without an asynchronous runtime nothing is unpacked again.
pub(crate) fn start(store: &Arc<Inner>) -> Result<(), Error> {
    let (wake, woken) = channel();
    let (weak, runtime) = (Arc::downgrade(store), Handle::try_current().ok());
    thread::Builder::new()
        .name("image-keeper".into())
        .spawn(move || run(&weak, &woken, runtime.as_ref()))
        .map_err(|cause| Error::system(format!("start the thread that repairs the image store: {cause}")))?;
    let _ = store.keeper.set(Keeper(wake));
    Ok(())
}

fn run(store: &Weak<Inner>, woken: &Receiver<()>, runtime: Option<&Handle>) {
    step_back();
    let (mut pause, mut again) = (FIRST, AGAIN);
    loop {
        match woken.recv_timeout(pause) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
        }
        // One round answers all that woke it.
        while woken.try_recv().is_ok() {}
        let Some(store) = store.upgrade() else { return };
        if store.repair(runtime, Pace::Background) {
            (pause, again) = (LATER, AGAIN);
        } else {
            (pause, again) = (again, SOON.min(again * 2));
        }
    }
}

impl Store {
    /// Does now what is done in the background from ten seconds after the opening on: compares with digests what a
    /// power cut may have damaged, unpacks lost layers again. Returns whether nothing is left to be repaired.
    ///
    /// # Errors
    /// The thread that does it ended early.
    pub async fn repair(&self) -> Result<bool, Error> {
        let (store, runtime) = (self.inner.clone(), Handle::current());
        let disk = store.disk.clone();
        disk.thread("image-repair", move || Ok(store.repair(Some(&runtime), Pace::Full))).await
    }
}

impl Inner {
    /// Begins a round now.
    pub(crate) fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            let _ = keeper.0.send(());
        }
    }

    /// One round; whether nothing is left to be repaired.
    fn repair(self: &Arc<Self>, runtime: Option<&Handle>, pace: Pace) -> bool {
        let mut done = !snapshot::retry_unreadable(self);
        done &= self.retry_unknown();
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
                    tracing::warn!("image {id}: unpack it again: {error}");
                    done = false;
                }
            }
        }
        self.reserve.refill();
        done && self.state.lock().damaged().is_empty()
    }

    /// Opens the layers again that could not be opened.
    fn retry_unknown(&self) -> bool {
        let unknown: Vec<Digest> = self.state.lock().unknown.iter().cloned().collect();
        let mut done = true;
        for chain in unknown {
            match layer_exists(&self.layer_path(&chain)) {
                Ok(true) => drop(self.state.lock().unknown.remove(&chain)),
                Ok(false) => done &= self.replace(&chain),
                Err(_) => done = false,
            }
        }
        done
    }

    /// Compares the layers, then the blobs, that were not compared yet with their digests. Returns whether all of them
    /// could be read.
    fn verify(self: &Arc<Self>, pace: Pace) -> bool {
        let mut done = true;
        for chain in self.layers_by_use() {
            if Arc::strong_count(self) == 1 {
                return false; // the store is being closed
            }
            let Some(record) = self.state.lock().layers.get(&chain).cloned().filter(|layer| !layer.damaged) else {
                continue;
            };
            let Some(wanted) = record.digest else { continue };
            let path = self.layer_path(&chain);
            let open = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            match open.and_then(|directory| tree_digest(directory.as_fd(), pace)) {
                Ok(found) if found == wanted => drop(self.state.lock().verified.layers.insert(chain)),
                Ok(_) => {
                    tracing::warn!("layer {chain}: its files are not those that were unpacked; it is unpacked again");
                    done &= self.replace(&chain);
                }
                // Removed in the meantime, or the disk failed: not known, so it is kept.
                Err(cause) if self.state.lock().layers.contains_key(&chain) => {
                    tracing::warn!("layer {chain}: compare with its digest: {cause}; retrying");
                    done = false;
                }
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

    /// All layers that were not compared yet, those of containers first.
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
                Ok(found) if found == blob => drop(self.state.lock().verified.blobs.insert(blob)),
                Ok(_) => {
                    tracing::warn!(
                        "blob {blob}: damaged on disk; removed, it is fetched with the next pull of its image"
                    );
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

    /// Hides the images of a layer that is not what it should be until it is unpacked again, and removes it; one that a
    /// container uses keeps its directory until then. Returns whether that is done.
    fn replace(&self, chain: &Digest) -> bool {
        let _writer = self.writer();
        let (hidden, in_use) = {
            let mut state = self.state.lock();
            let in_use =
                !state.unreadable.is_empty() || state.layers_in_snapshots().contains(chain) || state.leased(chain);
            let Some(record) = state.layers.get_mut(chain) else { return true };
            if in_use && record.damaged {
                return true;
            }
            record.damaged = true;
            let in_use = in_use.then(|| record.clone());
            state.unknown.remove(chain);
            state.verified.layers.remove(chain);
            if in_use.is_none() {
                state.layers.remove(chain);
            }
            (state.hide_images_with(chain), in_use)
        };
        let replaced = match in_use {
            Some(record) => {
                tracing::error!("layer {chain} is damaged and in use; its containers keep it, new ones get another");
                let put_layers = vec![(chain.clone(), record)];
                self.commit(&Change { put_images: hidden, put_layers, ..Change::default() })
            }
            None => self
                .commit(&Change { put_images: hidden, drop_layers: vec![chain.clone()], ..Change::default() })
                .and_then(|()| self.trash.take(&self.layer_path(chain)))
                .and_then(|()| self.records.drop_layer(chain)),
        };
        replaced.inspect_err(|error| tracing::warn!("layer {chain}: {error}")).is_ok()
    }

    /// Makes an image whole from its blobs.
    async fn unpack_again(self: Arc<Self>, image: ImageRecord) -> Result<(), Error> {
        let chains = image.layers.iter().map(|layer| layer.chain.clone());
        let lease = self.state.lease(chains.chain(image.blobs.iter().cloned()));
        let parsed = parse_config(&self.content.get(&image.id, CONFIG_MAX)?)?;
        let layers = image.layers.clone();
        if let Some(layer) = layers.iter().find(|layer| self.content.present(&layer.blob).is_none()) {
            return Err(Error::not_found(format!("blob {} is not in the store; pull the image again", layer.blob)));
        }
        let ready = match self.bring_layers(&layers, &Source::Store, &Listeners::default(), &Cancel::never()).await {
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
