//! Sizes of writable layers, measured in the background so that no request walks a tree.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::AsFd,
    fs::{Mode, OFlags},
};

use crate::{Error, background::BackgroundThread, store::Inner, usage};

/// Interval between two samples of one writable layer.
const INTERVAL: Duration = Duration::from_secs(10);
/// A layer is walked again after this many times the duration of its last walk, so that sampling takes one percent of a
/// core at most.
const REST: u32 = 100;

pub(crate) fn start(store: &Arc<Inner>) -> Result<(), Error> {
    let (alive, closed) = sync_channel(1);
    let weak = Arc::downgrade(store);
    thread::Builder::new()
        .name("image-usage".into())
        .spawn(move || run(&weak, &closed))
        .map_err(|cause| Error::system(format!("start the thread that samples sizes: {cause}")))?;
    let _ = store.sampler.set(BackgroundThread::new(alive));
    Ok(())
}

fn run(store: &Weak<Inner>, closed: &Receiver<()>) {
    let mut due: HashMap<String, Instant> = HashMap::new();
    while let Err(RecvTimeoutError::Timeout) = closed.recv_timeout(INTERVAL / 5) {
        let Some(store) = store.upgrade() else { return };
        let keys: Vec<String> = store.state.lock().snapshots.keys().cloned().collect();
        let existing: std::collections::HashSet<_> = keys.iter().cloned().collect();
        due.retain(|key, _| existing.contains(key));
        for key in keys {
            if due.get(&key).is_some_and(|at| *at > Instant::now()) {
                continue;
            }
            let start = Instant::now();
            sample(&store, &key);
            due.insert(key, Instant::now() + INTERVAL.max(start.elapsed() * REST));
        }
    }
}

fn sample(store: &Inner, key: &str) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(store.snapshot_path(key).join("upper"), flags, Mode::empty());
    // A snapshot that was removed in the meantime has no size.
    if let Ok(measure) = directory.and_then(|directory| usage::measure(directory.as_fd()))
        && let Some(snapshot) = store.state.lock().snapshots.get_mut(key)
    {
        // An incomplete walk replaces only a smaller sample: a container may hide directories from it by moving them.
        if !measure.partial || measure.usage.bytes >= snapshot.usage.bytes {
            snapshot.usage = measure.usage;
        }
    }
}
