//! Threads that wait for pipes and do the calls that may block.
//!
//! All wait for one epoll instance, which never blocks on a pipe's mutex. A thread that has an event handles it itself,
//! after it made sure that another thread waits: a call that does not return costs one thread. No worker of the async
//! runtime and none of its threads for blocking work is involved.

use std::{
    collections::{HashMap, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{
        EventfdFlags,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
        eventfd,
    },
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use super::BLOCKED;

/// Threads that wait although there is nothing to do.
const SPARE: usize = 8;
/// With all of these blocked no shared pipe is read, written or closed until one returns. Each container is refused
/// further commands long before.
const THREADS_MAX: usize = 1024;
const STACK: usize = 128 << 10;
/// The event that reports jobs.
const JOBS: u64 = 0;

type Job = Box<dyn FnOnce() + Send>;

/// A watched file that can be read or written, or is broken.
pub(super) trait Ready: Send + Sync {
    fn ready(&self);
}

/// See the module.
pub(super) struct Threads {
    epoll: OwnedFd,
    /// Written for each job, and never read: edge-triggered, a write wakes one thread.
    jobs: OwnedFd,
    state: Mutex<State>,
}

struct State {
    watched: HashMap<u64, Arc<dyn Ready>>,
    jobs: VecDeque<Job>,
    last_token: u64,
    threads: usize,
    waiting: usize,
    last_work: u64,
    /// What threads do now, and since when.
    running: Vec<(u64, Instant)>,
}

/// How often a thread is woken by either way before the kernel is believed to be out of memory.
const WAKES_MAX: usize = 8;

enum Work {
    Ready(Arc<dyn Ready>),
    Job(Job),
}

impl Work {
    fn run(self) {
        match self {
            Self::Ready(watched) => watched.ready(),
            Self::Job(job) => job(),
        }
    }
}

static THREADS: OnceLock<Threads> = OnceLock::new();

/// The threads of this process, which the first call starts.
pub(super) fn threads() -> io::Result<&'static Threads> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(threads) = THREADS.get() {
        return Ok(threads);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if THREADS.get().is_none() {
        let _ = THREADS.set(Threads::new()?);
    }
    THREADS.get().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Has one of the threads run it. Where there are none, for want of memory or descriptors, a worker runs it.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    match threads().and_then(|threads| threads.wait_for_work().map(|()| threads)) {
        Ok(threads) => threads.run(Box::new(job)),
        Err(_) => offload::here(job),
    }
}

/// How many threads have been inside one call for [`BLOCKED`] or longer.
pub(super) fn blocked() -> usize {
    let Some(threads) = THREADS.get() else { return 0 };
    threads.lock().running.iter().filter(|(_, begun)| begun.elapsed() >= BLOCKED).count()
}

impl Threads {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let jobs = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &jobs, EventData::new_u64(JOBS), EventFlags::IN | EventFlags::ET)?;
        let state = State {
            watched: HashMap::new(),
            jobs: VecDeque::new(),
            last_token: JOBS,
            threads: 0,
            waiting: 0,
            last_work: 0,
            running: Vec::new(),
        };
        Ok(Self { epoll, jobs, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that a thread waits, or will. One that could not be started before is tried again.
    fn wait_for_work(&'static self) -> io::Result<()> {
        let mut state = self.lock();
        if state.waiting > 0 || state.threads >= THREADS_MAX {
            return Ok(());
        }
        match self.start_thread(&mut state) {
            Err(error) if state.threads == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Watches a file: for these events once, and for errors. Returns the file's token.
    pub(super) fn watch(&'static self, file: impl AsFd, events: EventFlags, ready: Arc<dyn Ready>) -> io::Result<u64> {
        self.wait_for_work()?;
        let token = {
            let mut state = self.lock();
            state.last_token += 1;
            let token = state.last_token;
            state.watched.insert(token, ready);
            token
        };
        let added = epoll::add(&self.epoll, file, EventData::new_u64(token), events | EventFlags::ONESHOT);
        added.map(|()| token).map_err(|errno| {
            self.forget(token);
            errno.into()
        })
    }

    /// Watches a file once more that is watched already.
    pub(super) fn arm(&self, file: impl AsFd, token: u64, events: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, file, EventData::new_u64(token), events | EventFlags::ONESHOT)?)
    }

    /// Watches a file no longer. Its close removes it from the epoll instance.
    pub(super) fn forget(&self, token: u64) {
        let forgotten = self.lock().watched.remove(&token);
        drop(forgotten);
    }

    fn run(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.wake_for_job();
    }

    fn wake_for_job(&self) {
        // A job that no thread notices would be taken for one that blocks. The counter is never 0: to watch it again is
        // an event, too.
        let written = || rustix::io::write(&self.jobs, &1u64.to_ne_bytes()).is_ok();
        let watched = || {
            let event = EventData::new_u64(JOBS);
            epoll::modify(&self.epoll, &self.jobs, event, EventFlags::IN | EventFlags::ET).is_ok()
        };
        let _ = (0..WAKES_MAX).any(|_| written() || watched());
    }

    fn start_thread(&'static self, state: &mut State) -> io::Result<()> {
        thread::Builder::new().name("shared-pipes".into()).stack_size(STACK).spawn(|| self.work())?;
        state.threads += 1;
        state.waiting += 1;
        Ok(())
    }

    fn work(&'static self) {
        syscall::scheduling::serve_requests();
        loop {
            let token = self.wait();
            let (work, number) = {
                let mut state = self.lock();
                let Some(work) = self.take(&mut state, token) else { continue };
                state.waiting -= 1;
                if state.waiting == 0 && state.threads < THREADS_MAX && self.start_thread(&mut state).is_err() {
                    tracing::warn!("start a thread for pipes of containers: no memory; others wait for this one");
                }
                state.last_work += 1;
                let number = state.last_work;
                state.running.push((number, Instant::now()));
                (work, number)
            };
            // A panic is in the log. What it was about is not waited for by these threads.
            let _ = catch_unwind(AssertUnwindSafe(|| work.run()));
            let mut state = self.lock();
            state.running.retain(|(running, _)| *running != number);
            if state.waiting >= SPARE {
                state.threads -= 1;
                return;
            }
            state.waiting += 1;
        }
    }

    /// Waits for one event.
    fn wait(&self) -> u64 {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(JOBS) }];
        loop {
            match epoll::wait(&self.epoll, &mut events[..], None) {
                Ok(1..) => return events[0].data.u64(),
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel has no memory: the event is not lost.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn take(&self, state: &mut State, token: u64) -> Option<Work> {
        if token != JOBS {
            return state.watched.get(&token).cloned().map(Work::Ready);
        }
        let job = state.jobs.pop_front();
        if !state.jobs.is_empty() {
            // Two writes may be one event.
            self.wake_for_job();
        }
        job.map(Work::Job)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn jobs_that_block_delay_no_other() {
        let (ran, runs) = mpsc::channel();
        let releases: Vec<_> = (0..20)
            .map(|_| {
                let (release, released) = mpsc::channel::<()>();
                let ran = ran.clone();
                run(move || {
                    ran.send(()).expect("it waits");
                    let _ = released.recv_timeout(2 * LONG);
                });
                release
            })
            .collect();
        for _ in &releases {
            runs.recv_timeout(LONG).expect("each has a thread");
        }
        drop(releases);
        let threads = threads().expect("started");
        let begin = Instant::now();
        while threads.lock().threads > SPARE + 1 {
            assert!(begin.elapsed() < LONG, "the threads end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        for _ in 0..10 {
            run(|| panic!("of the test"));
        }
        let (ran, runs) = mpsc::channel();
        run(move || ran.send(()).expect("it waits"));
        runs.recv_timeout(LONG).expect("it runs");
    }
}
