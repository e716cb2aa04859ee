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
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

/// How long a call may block a worker before another one is woken.
const PATIENCE: Duration = Duration::from_millis(5);
/// After this time without a call the thread that watches sleeps until there is one.
const IDLE: Duration = Duration::from_millis(200);
const STACK: usize = 64 << 10;

static CALLS: Mutex<Calls> = Mutex::new(Calls { now: Vec::new(), begun: 0, watch: Watch::NotStarted });
static BEGUN: Condvar = Condvar::new();

/// The calls of this process.
struct Calls {
    now: Vec<Call>,
    begun: u64,
    watch: Watch,
}

/// A call that blocks a worker now.
struct Call {
    number: u64,
    began: Instant,
    runtime: Handle,
}

/// What the thread that watches does.
#[derive(PartialEq, Eq)]
enum Watch {
    NotStarted,
    Looks,
    Sleeps,
}

/// A call, for as long as it is not dropped.
pub(crate) struct Blocking(u64);

impl Blocking {
    /// Counts a call that will block a worker of this runtime, which this is called on. `None`: it must be handed over.
    pub(crate) fn begin(runtime: &Handle) -> Option<Self> {
        let workers = runtime.metrics().num_workers();
        let mut calls = lock();
        let blocked = calls.now.iter().filter(|call| call.runtime.id() == runtime.id()).count();
        if blocked + 1 >= workers || !calls.are_watched() {
            return None;
        }
        calls.begun += 1;
        let number = calls.begun;
        calls.now.push(Call { number, began: Instant::now(), runtime: runtime.clone() });
        drop(calls);
        let counted = Self(number);
        // The task that was woken last gives way to one woken later: others can take it now.
        runtime.spawn(async {});
        Some(counted)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        lock().now.retain(|call| call.number != self.0);
    }
}

impl Calls {
    /// Whether a thread watches them from now on.
    fn are_watched(&mut self) -> bool {
        match self.watch {
            Watch::Looks => {}
            Watch::Sleeps => {
                self.watch = Watch::Looks;
                BEGUN.notify_one();
            }
            Watch::NotStarted => {
                let thread = thread::Builder::new().name("offload-watch".into()).stack_size(STACK);
                if thread.spawn(look).is_err() {
                    return false;
                }
                self.watch = Watch::Looks;
            }
        }
        true
    }
}

fn lock() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a worker of each runtime that has one blocked for longer than [`PATIENCE`]: it polls the drivers, and takes tasks of
/// those that are blocked.
fn look() {
    /// Another thread is started where this one ends.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            lock().watch = Watch::NotStarted;
        }
    }
    let _end = End;
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        thread::sleep(PATIENCE);
        let mut calls = lock();
        if calls.begun != seen {
            (seen, since) = (calls.begun, Instant::now());
        }
        if calls.now.is_empty() && since.elapsed() >= IDLE {
            calls.watch = Watch::Sleeps;
            while calls.watch == Watch::Sleeps {
                calls = BEGUN.wait(calls).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let late = calls.now.iter().filter(|call| call.began.elapsed() >= PATIENCE);
        let late: Vec<Handle> = late.map(|call| call.runtime.clone()).collect();
        drop(calls);
        for runtime in late {
            runtime.spawn(async {});
        }
    }
}
