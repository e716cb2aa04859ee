//! Deletes links in the background. Deleting one link blocks for 16 to 29 ms in the kernel, and deleting many at once
//! takes about as long. So links are queued, and a thread deletes all links that were queued while it deleted the
//! previous ones.
//!
//! Steps that must wait until a link is gone (releasing its address, removing its record) run in the `after` callback.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use rustix::io::Errno;

use crate::Error;
use rtnl::netlink::{Batch, Refusal, Socket};

/// Maximum links per request: other users of rtnetlink are blocked for 0.5 to 0.8 ms per link.
const BATCH: usize = 64;
/// How often a request is tried that failed temporarily, mostly because memory was short. After that the link is left
/// to the reconciler.
const TRIES: usize = 5;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(200);

type After = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The queue and its thread.
pub(crate) struct Removal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Vec<(String, After)>,
    /// How many links were queued, and how many of them are done.
    queued: u64,
    done: u64,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Removal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Removal").field("queued", &self.shared.lock().queue.len()).finish()
    }
}

impl Removal {
    /// Starts the thread, with a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("link-removal".into())
            .spawn(move || serve(&thread_shared, socket))
            .map_err(|e| Error::kernel("start", "thread link-removal", e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Queues a link for deletion and calls `after` when it is deleted. A link that does not exist counts as deleted.
    pub(crate) fn push(&self, link: String, after: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let mut state = self.shared.lock();
        state.queue.push((link, Box::new(after)));
        state.queued += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Reports whether links are queued or being deleted.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        state.done < state.queued
    }

    /// Returns a closure that blocks until the links are deleted that are queued when it is called.
    pub(crate) fn settle(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let mut state = shared.lock();
            let queued = state.queued;
            while state.done < queued {
                state = shared.wait(state);
            }
        }
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        // The last owner may be a callback on the thread itself, which cannot join itself.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic was already printed by the thread; the ledger still has the unfinished work.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared, mut socket: Socket) {
    loop {
        let work: Vec<(String, After)> = {
            let mut state = shared.lock();
            while state.queue.is_empty() {
                if state.closed {
                    return;
                }
                state = shared.wait(state);
            }
            let many = state.queue.len().min(BATCH);
            state.queue.drain(..many).collect()
        };
        let (links, afters): (Vec<String>, Vec<After>) = work.into_iter().unzip();
        let outcome = delete_trying(&mut socket, &links);
        for (link, after) in links.iter().zip(afters) {
            after(match &outcome {
                Ok(()) => Ok(()),
                Err(refusal) => Err(Error::kernel("delete link", link, std::io::Error::other(refusal.to_string()))),
            });
        }
        shared.lock().done += links.len() as u64;
        shared.changed.notify_all();
    }
}

fn delete_trying(socket: &mut Socket, links: &[String]) -> Result<(), Refusal> {
    for _ in 1..TRIES {
        match delete(socket, links) {
            Err(refusal) if matches!(refusal.errno, Errno::NOMEM | Errno::NOBUFS | Errno::INTR | Errno::AGAIN) => {
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
    delete(socket, links)
}

fn delete(socket: &mut Socket, links: &[String]) -> Result<(), Refusal> {
    let mut batch = Batch::new();
    match links {
        [one] => rtnl::delete(&mut batch, one),
        many => rtnl::delete_many(&mut batch, many),
    }
    let refusals = socket.request_each(batch)?;
    // ENODEV: the link is already gone, mostly because its namespace is.
    refusals.into_iter().find(|refusal| refusal.errno != Errno::NODEV).map_or(Ok(()), Err)
}
