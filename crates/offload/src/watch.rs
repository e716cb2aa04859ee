//! Calls that block a worker in its place, for those that nearly always return within microseconds: a hand-over of the
//! worker's tasks to another thread costs two switches of threads, more than most of these calls.
//!
//! What a blocked worker keeps from others, and who takes it meanwhile:
//!
//! | kept | taken |
//! |---|---|
//! | the task that it woke last, which no other worker can take | by others: an empty task takes its place before the call |
//! | its other tasks | by a worker that looks for some |
//! | tasks that used up their turn (tokio's budget) and wait for its next one | by nobody |
//! | the I/O and time drivers, if it polled them last and all others sleep | by a worker that is woken after [`PATIENCE`] |
//!
//! One worker of a runtime is always left: what would block the last one is handed over.

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

static CALLS: Mutex<Calls> = Mutex::new(Calls { now: Vec::new(), begun: 0, timer: None });

/// The calls of this process.
struct Calls {
    now: Vec<Call>,
    begun: u64,
    /// Rings [`PATIENCE`] after the first of [`Self::now`] began, and then again and again; off while there is none. A
    /// thread waits for it; `None`: no thread does.
    timer: Option<Arc<OwnedFd>>,
}

/// A call that blocks a worker now.
struct Call {
    number: u64,
    began: Instant,
    runtime: Handle,
}

/// A call, for as long as it is not dropped.
pub(crate) struct Blocking(u64);

impl Blocking {
    /// Counts a call that will block a worker of this runtime, which this is called on. `None`: it must be handed over.
    pub(crate) fn begin(runtime: &Handle) -> Option<Self> {
        let workers = runtime.metrics().num_workers();
        let mut calls = lock();
        let blocked = calls.now.iter().filter(|call| call.runtime.id() == runtime.id()).count();
        let began = Instant::now();
        if blocked + 1 >= workers || ((calls.now.is_empty() || calls.timer.is_none()) && calls.watch().is_err()) {
            return None;
        }
        calls.begun += 1;
        let number = calls.begun;
        calls.now.push(Call { number, began, runtime: runtime.clone() });
        drop(calls);
        let counted = Self(number);
        // The task that was woken last gives way to one woken later: others can take it now.
        runtime.spawn(async {});
        Some(counted)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut calls = lock();
        calls.now.retain(|call| call.number != self.0);
        if let Some(timer) = calls.timer.as_ref().filter(|_| calls.now.is_empty()) {
            // One that rings all the same finds nothing.
            let _ = set(timer, Duration::ZERO);
        }
    }
}

impl Calls {
    /// Sets the timer, and starts the thread that waits for it where there is none.
    fn watch(&mut self) -> io::Result<()> {
        if let Some(timer) = &self.timer {
            return set(timer, PATIENCE);
        }
        let timer = Arc::new(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?);
        set(&timer, PATIENCE)?;
        let theirs = Arc::clone(&timer);
        thread::Builder::new().name("offload-watch".into()).stack_size(STACK).spawn(move || look(&theirs))?;
        self.timer = Some(timer);
        Ok(())
    }
}

/// Lets it ring after this time, and each time that this time has passed again; never with zero.
fn set(timer: &OwnedFd, time: Duration) -> io::Result<()> {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let times = Itimerspec { it_interval: time, it_value: time };
    Ok(timerfd_settime(timer, TimerfdTimerFlags::empty(), &times).map(drop)?)
}

fn lock() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a worker of each runtime that has one blocked for longer than [`PATIENCE`]: it polls the drivers, and takes
/// tasks of those that are blocked.
fn look(timer: &OwnedFd) {
    /// Another thread is started where this one ends.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            lock().timer = None;
        }
    }
    let _end = End;
    loop {
        // How often it rang.
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
