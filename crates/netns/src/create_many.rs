//! Creation of many namespaces, as fast as the kernel and the consumer permit.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

use crate::{Error, Memory, Namespace, teardown};

/// Most namespaces that are ready and not taken yet.
const READY_MAX: usize = 32;
/// Most threads that create: more wait for each other in the kernel.
const THREADS_MAX: usize = 4;
/// The available memory is read once for this many namespaces of a thread.
const BETWEEN_MEMORY_READS: usize = 32;

/// An iterator over new namespaces, each with `lo` up.
///
/// Threads create them in advance, at most 32 more than were taken: a consumer that is slow is not run over. They pause
/// while the kernel destroys many namespaces, and stop when the reserved memory is reached. Dropping the iterator ends
/// them, and drops what was not taken.
///
/// After an error the iterator ends, and drops what was created in advance.
#[derive(Debug)]
pub struct CreateMany {
    /// `None` after the last item: threads that wait for room in the queue end, and what is in it is dropped.
    ready: Option<Receiver<Result<Namespace, Error>>>,
    shared: Arc<Shared>,
    remaining: usize,
}

#[derive(Debug)]
struct Shared {
    /// Number of namespaces that are still to be begun.
    begun: AtomicUsize,
    count: usize,
    stopped: AtomicBool,
    reserve: u64,
}

impl Namespace {
    /// Creates many namespaces in the background. `reserve` is the memory that is to stay available, in bytes; a namespace
    /// takes about 220 KiB.
    ///
    /// # Errors
    /// When no thread can be started. Errors of the creation are items of the iterator.
    pub fn create_many(count: usize, reserve: u64) -> Result<CreateMany, Error> {
        let (sender, ready) = sync_channel(READY_MAX);
        let stopped = AtomicBool::new(false);
        let shared = Arc::new(Shared { begun: AtomicUsize::new(0), count, stopped, reserve });
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        for number in 0..processors.min(THREADS_MAX).min(count) {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            let started = thread::Builder::new().name("netns-create".into()).spawn(move || create(&shared, &sender));
            match started {
                Ok(_) => {}
                // The threads that run create all of them.
                Err(_) if number > 0 => break,
                Err(error) => return Err(Error::kernel("start", "thread netns-create", error)),
            }
        }
        Ok(CreateMany { ready: Some(ready), shared, remaining: count })
    }
}

impl Iterator for CreateMany {
    type Item = Result<Namespace, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        // It fails when all threads have ended, which they do after an error.
        let item = self.ready.as_ref()?.recv().ok();
        self.remaining = if matches!(item, Some(Ok(_))) { self.remaining - 1 } else { 0 };
        if self.remaining == 0 {
            self.ready = None;
        }
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining))
    }
}

impl Drop for CreateMany {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }
}

fn create(shared: &Shared, ready: &SyncSender<Result<Namespace, Error>>) {
    for number in 0.. {
        if shared.stopped.load(Ordering::Relaxed) || shared.begun.fetch_add(1, Ordering::Relaxed) >= shared.count {
            return;
        }
        thread::sleep(teardown::remaining(Instant::now()));
        let checked = if number % BETWEEN_MEMORY_READS == 0 { check_memory(shared.reserve) } else { Ok(()) };
        let created = checked.and_then(|()| Namespace::create());
        if created.is_err() {
            shared.stopped.store(true, Ordering::Relaxed);
        }
        // It fails when the iterator was dropped; then `stopped` is set.
        let _ = ready.send(created);
    }
}

fn check_memory(reserve: u64) -> Result<(), Error> {
    let available = Memory::now()?.available;
    if available < reserve { Err(Error::Memory { available, reserve }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread fails while another waits for room in the queue.
    #[test]
    fn nothing_is_kept_after_an_error() {
        let (sender, ready) = sync_channel(2);
        let stopped = AtomicBool::new(true);
        let shared = Arc::new(Shared { begun: AtomicUsize::new(3), count: 9, stopped, reserve: 0 });
        let mut many = CreateMany { ready: Some(ready), shared, remaining: 9 };
        let error = || Err(Error::Memory { available: 0, reserve: 0 });
        sender.send(error()).expect("there is room");
        assert!(many.next().expect("an item").is_err());
        assert!(sender.send(error()).is_err(), "nobody takes it");
        assert!(many.next().is_none());
    }
}
