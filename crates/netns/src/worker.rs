//! Helper threads that enter namespaces, so that no other thread of the program has to.
//!
//! A helper thread returns to the original namespaces of the process after each job: otherwise it would keep the namespace,
//! and all links in it, alive. Idle helpers are kept: handing a job to one takes about 10 µs, starting a thread 30 µs. A slow
//! job never delays another one, because a new helper is started if none is idle.

use std::{
    any::Any,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, OnceLock, PoisonError, mpsc},
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    thread::move_into_link_name_space,
};

use crate::Error;

/// Maximum number of idle helpers; a helper that finishes a job beyond this number ends.
const IDLE_MAX: usize = 4;

type Job = Box<dyn FnOnce(&OriginalNamespaces) -> HelperState + Send>;

static IDLE_HELPERS: Mutex<Vec<mpsc::SyncSender<Job>>> = Mutex::new(Vec::new());

/// Whether a helper can be used again.
pub(crate) enum HelperState {
    /// It is in its original namespaces.
    Reusable,
    /// It could not return, so its thread must end.
    Lost,
}

/// The namespaces that helpers are in between jobs: those that the first thread of the process was in when this crate was
/// first used. The namespaces of the thread that starts a helper would not do: it may be another helper, or a thread with
/// a [`ThreadGuard`](crate::ThreadGuard), or have been started by one.
pub(crate) struct OriginalNamespaces {
    net: File,
    ipc: File,
    uts: File,
}

impl OriginalNamespaces {
    /// Returns those of this process; opens them at the first call, which must be made before a thread is switched.
    pub(crate) fn of_this_process() -> Result<&'static Self, Error> {
        static ORIGINAL: OnceLock<OriginalNamespaces> = OnceLock::new();
        if let Some(original) = ORIGINAL.get() {
            return Ok(original);
        }
        // The first thread has no namespaces anymore if it has ended before the process.
        let opened = Self::open("self").or_else(|_| Self::open("thread-self"));
        let opened = opened.map_err(|e| Error::kernel("open", "/proc/thread-self/ns", e))?;
        Ok(ORIGINAL.get_or_init(|| opened))
    }

    fn open(thread: &str) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{thread}/ns/{name}"));
        Ok(Self { net: open("net")?, ipc: open("ipc")?, uts: open("uts")? })
    }

    fn return_to(&self) -> HelperState {
        let all: [BorrowedFd<'_>; 3] = [self.net.as_fd(), self.ipc.as_fd(), self.uts.as_fd()];
        if all.into_iter().all(|fd| move_into_link_name_space(fd, None).is_ok()) {
            HelperState::Reusable
        } else {
            HelperState::Lost
        }
    }
}

/// Runs `work` on a helper and waits for it.
pub(crate) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    start(work)?.finish()
}

/// Work that a helper does in the background.
#[derive(Debug)]
pub(crate) struct HelperJob<T>(mpsc::Receiver<std::thread::Result<T>>);

impl<T> HelperJob<T> {
    /// Waits for the result.
    pub(crate) fn finish(self) -> Result<T, Error> {
        match self.0.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => Err(Error::Panicked(message(panic.as_ref()))),
            Err(_) => Err(Error::kernel(
                "run",
                "closure in namespace",
                io::Error::other("the helper thread ended unexpectedly"),
            )),
        }
    }
}

/// Runs `work` on a helper without waiting for it.
pub(crate) fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<HelperJob<T>, Error> {
    let (sender, result) = mpsc::sync_channel(1);
    let job: Job = Box::new(move |original| {
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let state = original.return_to();
        // The caller may have dropped the receiver.
        let _ = sender.send(outcome);
        state
    });
    dispatch(job)?;
    Ok(HelperJob(result))
}

fn dispatch(mut job: Job) -> Result<(), Error> {
    loop {
        let idle = IDLE_HELPERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(helper) = idle else { return spawn(job) };
        match helper.send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(back)) => job = back,
        }
    }
}

fn spawn(first: Job) -> Result<(), Error> {
    let original = OriginalNamespaces::of_this_process()?;
    std::thread::Builder::new()
        .name("netns-helper".into())
        .spawn(move || serve(original, first))
        .map_err(|e| Error::kernel("start", "thread netns-helper", e))?;
    Ok(())
}

fn serve(original: &OriginalNamespaces, first: Job) {
    // Room for one job: a helper is listed as idle once for each job that it takes.
    let (sender, jobs) = mpsc::sync_channel(1);
    let mut job = first;
    loop {
        if matches!(job(original), HelperState::Lost) {
            return;
        }
        {
            let mut idle_helpers = IDLE_HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
            if idle_helpers.len() >= IDLE_MAX {
                return;
            }
            idle_helpers.push(sender.clone());
        }
        match jobs.recv() {
            Ok(next) => job = next,
            Err(mpsc::RecvError) => return,
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
