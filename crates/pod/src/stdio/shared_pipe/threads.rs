//! Threads that wait for pipes and make the calls that may block.
//!
//! All of them wait on one epoll instance, which never blocks on a pipe's mutex. A thread that gets an event handles it
//! itself, after it made sure that another thread waits: a call that does not return occupies one thread. Neither the
//! workers of the async runtime nor its threads for blocking work are involved.

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

use crate::store::BLOCKED;

/// Number of idle threads that are kept.
const SPARE: usize = 8;
/// If all of these are blocked, no shared pipe is read, written or closed until one returns. A container is refused
/// further exec sessions long before.
const THREADS_MAX: usize = 1024;
const STACK: usize = 128 << 10;
/// Token of the event that announces jobs.
const JOBS: u64 = 0;

type Job = Box<dyn FnOnce() + Send>;

/// Handler of a watched file that is readable or writable, or has an error.
pub(super) trait Ready: Send + Sync {
    fn ready(&self);
}

/// The pool of threads.
pub(super) struct Threads {
    epoll: OwnedFd,
    /// An eventfd that is written for each job and never read: it is edge-triggered, so a write wakes one thread.
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
    /// Handlers and jobs that are running, and when they were started.
    running: Vec<(u64, Instant)>,
}

/// How often waking a thread is tried, in two ways each, before the kernel is considered out of memory.
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

/// Returns the pool of this process. The first call creates it.
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

/// Runs a job on one of the threads. If there are none, for lack of memory or descriptors, the calling worker runs it.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    match threads().and_then(|threads| threads.wait_for_work().map(|()| threads)) {
        Ok(threads) => threads.run(Box::new(job)),
        Err(_) => offload::in_place(job),
    }
}

/// Returns how many threads have been inside one call for [`BLOCKED`] or longer.
pub(super) fn blocked() -> usize {
    let Some(threads) = THREADS.get() else { return 0 };
    threads.lock().running.iter().filter(|(_, start)| start.elapsed() >= BLOCKED).count()
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

    /// Makes sure that a thread waits for work. A thread that could not be started before is tried again.
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

    /// Watches a file once for these events and for errors. Returns the token of the file.
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

    /// Watches a file again.
    pub(super) fn arm(&self, file: impl AsFd, token: u64, events: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, file, EventData::new_u64(token), events | EventFlags::ONESHOT)?)
    }

    /// Stops watching a file. Closing it removes it from the epoll instance.
    pub(super) fn forget(&self, token: u64) {
        let forgotten = self.lock().watched.remove(&token);
        drop(forgotten);
    }

    fn run(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.wake_for_job();
    }

    fn wake_for_job(&self) {
        // A job that no thread picks up would look like a blocked one. If the write fails, modifying the watch also
        // triggers an event, because the counter is never 0.
        let wrote = || rustix::io::write(&self.jobs, &1u64.to_ne_bytes()).is_ok();
        let modified = || {
            let event = EventData::new_u64(JOBS);
            epoll::modify(&self.epoll, &self.jobs, event, EventFlags::IN | EventFlags::ET).is_ok()
        };
        let _ = (0..WAKES_MAX).any(|_| wrote() || modified());
    }

    fn start_thread(&'static self, state: &mut State) -> io::Result<()> {
        thread::Builder::new().name("shared-pipes".into()).stack_size(STACK).spawn(|| self.work())?;
        state.threads += 1;
        state.waiting += 1;
        Ok(())
    }

    fn work(&'static self) {
        syscall::scheduling::prioritize_request_thread();
        loop {
            let token = self.wait();
            let (work, number) = {
                let mut state = self.lock();
                let Some(work) = self.take(&mut state, token) else { continue };
                state.waiting -= 1;
                if state.waiting == 0 && state.threads < THREADS_MAX && self.start_thread(&mut state).is_err() {
                    tracing::warn!("start a thread for pipes of containers: no memory; other pipes wait for this one");
                }
                state.last_work += 1;
                let number = state.last_work;
                state.running.push((number, Instant::now()));
                (work, number)
            };
            // The panic was logged by the hook. The pipe that it concerned is not watched anymore.
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
                // The kernel is out of memory: the event is not lost.
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
            // Several writes may have caused a single event.
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
    fn blocked_jobs_do_not_delay_others() {
        let (ran, runs) = mpsc::channel();
        let releases: Vec<_> = (0..20)
            .map(|_| {
                let (release, released) = mpsc::channel::<()>();
                let ran = ran.clone();
                run(move || {
                    ran.send(()).expect("the test waits");
                    let _ = released.recv_timeout(2 * LONG);
                });
                release
            })
            .collect();
        for _ in &releases {
            runs.recv_timeout(LONG).expect("each job has a thread");
        }
        drop(releases);
        let threads = threads().expect("started");
        let begin = Instant::now();
        while threads.lock().threads > SPARE + 1 {
            assert!(begin.elapsed() < LONG, "surplus threads end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_survives_a_job_that_panics() {
        for _ in 0..10 {
            run(|| panic!("on purpose"));
        }
        let (ran, runs) = mpsc::channel();
        run(move || ran.send(()).expect("the test waits"));
        runs.recv_timeout(LONG).expect("the job runs");
    }
}
