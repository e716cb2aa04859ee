//! Watches calls that block a worker. For calls that nearly always return within microseconds this is cheaper than
//! handing the worker's tasks over to another thread, which costs two context switches.
//!
//! What a blocked worker withholds from others, and how it is made available:
//!
//! | withheld | made available |
//! |---|---|
//! | the task that it woke last, which other workers cannot take | by waking an empty task before the call, which replaces it |
//! | its other tasks | by idle workers, which take them |
//! | tasks that have used up tokio's cooperative budget | not at all |
//! | the I/O and time drivers, if it polled them last and all others sleep | by waking a worker after [`PATIENCE`] |
//!
//! At least one worker of a runtime is never blocked: a call that would block the last one is handed over instead.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use tokio::runtime::Handle;

/// How long a call may block a worker before another one is woken.
const PATIENCE: Duration = Duration::from_millis(5);
const STACK: usize = 64 << 10;

static CALLS: Mutex<Calls> = Mutex::new(Calls { now: Vec::new(), last_number: 0, timer: None });

/// The blocking calls of this process.
struct Calls {
    now: Vec<Call>,
    last_number: u64,
    /// Expires [`PATIENCE`] after the first of [`Self::now`] started, and periodically after that; disarmed while
    /// no call is registered. A thread waits for it; `None` if the thread is not running.
    timer: Option<Arc<OwnedFd>>,
}

/// A call that is blocking a worker.
struct Call {
    number: u64,
    began: Instant,
    runtime: Handle,
}

/// The registration of a call; dropping it ends the call.
pub(crate) struct Blocking(u64);

impl Blocking {
    /// Registers a call that is about to block the current worker of this runtime. `None`: the worker's tasks must be
    /// handed over instead.
    pub(crate) fn begin(runtime: &Handle) -> Option<Self> {
        let workers = runtime.metrics().num_workers();
        let mut calls = lock();
        let blocked = calls.now.iter().filter(|call| call.runtime.id() == runtime.id()).count();
        let began = Instant::now();
        if blocked + 1 >= workers || ((calls.now.is_empty() || calls.timer.is_none()) && calls.watch().is_err()) {
            return None;
        }
        calls.last_number += 1;
        let number = calls.last_number;
        calls.now.push(Call { number, began, runtime: runtime.clone() });
        drop(calls);
        let registration = Self(number);
        // This task replaces the one that was woken last, which other workers can take from then on.
        runtime.spawn(async {});
        Some(registration)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut calls = lock();
        calls.now.retain(|call| call.number != self.0);
        if let Some(timer) = calls.timer.as_ref().filter(|_| calls.now.is_empty()) {
            // If disarming fails, the watching thread finds no calls.
            let _ = set(timer, Duration::ZERO);
        }
    }
}

impl Calls {
    /// Arms the timer, and starts the watching thread if it is not running.
    fn watch(&mut self) -> io::Result<()> {
        if let Some(timer) = &self.timer {
            return set(timer, PATIENCE);
        }
        let timer = Arc::new(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?);
        set(&timer, PATIENCE)?;
        let shared = Arc::clone(&timer);
        thread::Builder::new().name("offload-watch".into()).stack_size(STACK).spawn(move || watch(&shared))?;
        self.timer = Some(timer);
        Ok(())
    }
}

/// Arms the timer to expire after this time and periodically after that; zero disarms it.
fn set(timer: &OwnedFd, time: Duration) -> io::Result<()> {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let times = Itimerspec { it_interval: time, it_value: time };
    Ok(timerfd_settime(timer, TimerfdTimerFlags::empty(), &times).map(drop)?)
}

fn lock() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a worker of each runtime that has had a blocked worker for longer than [`PATIENCE`]. The woken worker polls
/// the drivers, and takes tasks of the blocked workers.
fn watch(timer: &OwnedFd) {
    /// Causes the thread to be started again if it ends.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            lock().timer = None;
        }
    }
    let _end = End;
    loop {
        // Reads the number of expirations.
        if rustix::io::read(timer, &mut [0; 8]).is_err() {
            thread::sleep(PATIENCE);
        }
        let calls = lock();
        let late = calls.now.iter().filter(|call| call.began.elapsed() >= PATIENCE);
        let late: Vec<Handle> = late.map(|call| call.runtime.clone()).collect();
        drop(calls);
        for runtime in late {
            runtime.spawn(async {});
        }
    }
}
