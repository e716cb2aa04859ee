//! Links that are to go. To delete one waits 16 to 29 ms for the kernel; to delete many at once waits about as long. So
//! they queue here, and a thread deletes whatever has gathered while it deleted those before.
//!
//! What depends on a link being gone (its address is free again, its record is removed) happens in `after`.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use rustix::io::Errno;

use crate::{
    Error,
    netlink::{Batch, Refusal, Socket},
    rtnl,
};

/// No more in one go: other users of rtnetlink wait meanwhile (0.5 to 0.8 ms for each).
const BATCH: usize = 64;
/// A request that could not be sent or answered, for want of memory mostly, is made so often, so far apart. What fails
/// then has to wait for the reconciler.
const TRIES: usize = 5;
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
    busy: bool,
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
    /// In the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("link-removal".into())
            .spawn(move || serve(&theirs, socket))
            .map_err(|e| Error::kernel("start", "thread link-removal", e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Deletes a link by and by, then calls `after`; a link that is not there is gone already.
    pub(crate) fn push(&self, link: String, after: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.shared.lock().queue.push((link, Box::new(after)));
        self.shared.changed.notify_all();
    }

    /// Whether something is still to go.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        state.busy || !state.queue.is_empty()
    }

    /// What waits, blocking, until nothing is to go any more.
    pub(crate) fn settle(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let mut state = shared.lock();
            while state.busy || !state.queue.is_empty() {
                state = shared.wait(state);
            }
        }
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        // The last owner may be work of the thread itself, which cannot wait for its own end.
        let other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(other) {
            // A panic there was printed where it happened; the ledger still has what was not done.
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
            state.busy = true;
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
        shared.lock().busy = false;
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
    // Gone already: with its namespace, mostly.
    refusals.into_iter().find(|refusal| refusal.errno != Errno::NODEV).map_or(Ok(()), Err)
}
