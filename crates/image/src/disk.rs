//! Threads for work that waits for one disk, so that a disk that hangs blocks nothing else.
//!
//! ```text
//! run       ─▶ queue ─▶ 16 threads    short: stat, open, rename, a small file, mkdir; fails after 30 s of silence
//! run_long  ─▶ queue ─▶ 16 threads    syncfs, a walk over a layer, removals: as long as the disk takes
//! thread    ─▶ a dedicated thread     a stream between a disk and something else; the caller bounds their number
//! ```
//! tokio's pool for blocking work is shared by the whole process: a disk that does not respond would occupy all of its
//! threads, and an exec on another disk would wait for it.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::Error;

/// Threads of one queue.
const THREADS_MAX: usize = 16;
/// Requests that may wait in one queue; more are refused.
const WAITING_MAX: usize = 1024;
/// How long a short request waits for a disk that completes no request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of one disk. Cheap to clone; clones share the threads.
#[derive(Clone, Debug)]
pub struct Disk {
    path: Arc<Path>,
    answer_timeout: Duration,
    short: Arc<Queue>,
    long: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// When the last request completed.
    last_completed: Instant,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.jobs.len()).field("threads", &self.threads).finish()
    }
}

impl Disk {
    /// Creates the queues for the disk that holds `path`, which errors name. Threads are started when there is work.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), answer_timeout: ANSWER_TIMEOUT, short: Queue::new(), long: Queue::new() }
    }

    /// Runs short work. If the caller is dropped before the work starts, the work is dropped, too.
    ///
    /// # Errors
    /// The error of `work`; [`crate::ErrorKind::Unavailable`] if 1024 requests are waiting, or if the disk has
    /// completed no request for 30 s. In that case work that has started still runs to its end, and its result is
    /// dropped.
    pub async fn run<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (mut result, submitted) = (self.submit(&self.short, work)?, Instant::now());
        loop {
            let silent = self.short.lock().last_completed.max(submitted).elapsed();
            if silent >= self.answer_timeout {
                let path = self.path.display();
                return Err(Error::unavailable(format!(
                    "disk of {path} has not answered for {} s; check the disk",
                    silent.as_secs()
                ))
                .into());
            }
            if let Ok(result) = tokio::time::timeout(self.answer_timeout - silent, &mut result).await {
                return result.unwrap_or_else(|_| Err(self.panicked().into()));
            }
        }
    }

    /// Runs work of any duration. If the caller is dropped before the work starts, the work is dropped, too.
    ///
    /// # Errors
    /// The error of `work`; [`crate::ErrorKind::Unavailable`] if 1024 requests are waiting.
    pub async fn run_long<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let result = self.submit(&self.long, work)?;
        result.await.unwrap_or_else(|_| Err(self.panicked().into()))
    }

    /// Queues work of any duration for which no caller waits.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unavailable`] if 1024 requests are waiting.
    pub(crate) fn start_long(&self, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.long
            .push(Box::new(work))
            .map_err(|reason| Error::unavailable(format!("disk of {}: {reason}", self.path.display())))
    }

    /// Runs work on its own thread, named `name`. The work runs to its end even if the caller is dropped.
    ///
    /// # Errors
    /// The error of `work`; [`crate::ErrorKind::System`] if no thread can be started.
    pub async fn thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, result) = oneshot::channel();
        let span = tracing::Span::current();
        let run = move || drop(sender.send(span.in_scope(work)));
        let started = thread::Builder::new().name(name.to_owned()).spawn(run);
        started.map_err(|cause| Error::system(format!("start thread {name}: {cause}")))?;
        result.await.unwrap_or_else(|_| Err(self.panicked()))
    }

    fn submit<T, E>(
        &self,
        queue: &Arc<Queue>,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, E>>, Error>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let (sender, result) = oneshot::channel();
        let span = tracing::Span::current();
        let job = move || {
            if !sender.is_closed() {
                let _ = sender.send(span.in_scope(work));
            }
        };
        queue
            .push(Box::new(job))
            .map_err(|reason| Error::unavailable(format!("disk of {}: {reason}", self.path.display())))?;
        Ok(result)
    }

    fn panicked(&self) -> Error {
        Error::system(format!("disk of {}: a thread panicked", self.path.display()))
    }
}

impl Queue {
    fn new() -> Arc<Self> {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, last_completed: Instant::now() };
        Arc::new(Self { state: Mutex::new(state), wake: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, job: Job) -> Result<(), String> {
        let mut state = self.lock();
        if state.jobs.len() >= WAITING_MAX {
            let silent = state.last_completed.elapsed().as_secs();
            return Err(format!("{WAITING_MAX} requests wait for it; the last one completed {silent} s ago"));
        }
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= THREADS_MAX {
            self.wake.notify_one();
            return Ok(());
        }
        let queue = self.clone();
        match thread::Builder::new().name("image-disk".into()).spawn(move || queue.work()) {
            Ok(_) => state.threads += 1,
            // A running thread takes the job.
            Err(_) if state.threads > 0 => {}
            Err(cause) => {
                state.jobs.pop_back();
                return Err(format!("start a thread: {cause}"));
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The caller notices a panic, because the sender is dropped.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                state.last_completed = Instant::now();
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "disk/tests.rs"]
mod tests;
