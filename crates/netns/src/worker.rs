//! Threads that visit namespaces, so that no thread of the program ever does.
//!
//! A visitor is at home between jobs: a thread that stayed would keep the namespace, and all links in it, alive. Idle
//! visitors are kept (a hop to one costs some 10 µs, a new thread 30); a slow job never delays another, for a job that
//! finds no idle visitor makes one.

use std::{
    any::Any,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError, mpsc},
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    thread::move_into_link_name_space,
};

use crate::Error;

/// As many idle visitors stay; more end after their job.
const IDLE: usize = 4;

type Job = Box<dyn FnOnce(&Home) -> Stay + Send>;

static VISITORS: Mutex<Vec<mpsc::Sender<Job>>> = Mutex::new(Vec::new());

/// Whether a visitor can be used again.
pub(crate) enum Stay {
    /// It is at home.
    Home,
    /// It could not go home; its thread must end.
    Lost,
}

/// The namespaces a visitor comes from: those of the thread that made it.
pub(crate) struct Home {
    net: File,
    ipc: File,
    uts: File,
}

impl Home {
    fn here() -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/thread-self/ns/{name}"));
        Ok(Self { net: open("net")?, ipc: open("ipc")?, uts: open("uts")? })
    }

    fn go(&self) -> Stay {
        let all: [BorrowedFd<'_>; 3] = [self.net.as_fd(), self.ipc.as_fd(), self.uts.as_fd()];
        if all.into_iter().all(|fd| move_into_link_name_space(fd, None).is_ok()) { Stay::Home } else { Stay::Lost }
    }
}

/// Runs `work` on a visitor and brings the visitor home; the calling thread waits and moves nowhere.
pub(crate) fn visit<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    begin(work)?.finish()
}

/// Work that a visitor does meanwhile.
#[derive(Debug)]
pub(crate) struct Visit<T>(mpsc::Receiver<std::thread::Result<T>>);

impl<T> Visit<T> {
    /// Waits for it.
    pub(crate) fn finish(self) -> Result<T, Error> {
        match self.0.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => Err(Error::Panicked(message(panic.as_ref()))),
            Err(_) => Err(Error::kernel("visit", "namespace", io::Error::other("the thread ended before its work"))),
        }
    }
}

/// Has a visitor do `work`, and does not wait for it.
pub(crate) fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<Visit<T>, Error> {
    let (answer, result) = mpsc::sync_channel(1);
    let job: Job = Box::new(move |home| {
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let stay = home.go();
        // A caller that does not wait needs no answer.
        let _ = answer.send(outcome);
        stay
    });
    give(job)?;
    Ok(Visit(result))
}

fn give(mut job: Job) -> Result<(), Error> {
    loop {
        let idle = VISITORS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(visitor) = idle else { return spawn(job) };
        match visitor.send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(back)) => job = back,
        }
    }
}

fn spawn(first: Job) -> Result<(), Error> {
    let home = Home::here().map_err(|e| Error::kernel("open", "/proc/thread-self/ns", e))?;
    std::thread::Builder::new()
        .name("netns-visitor".into())
        .spawn(move || serve(&home, first))
        .map_err(|e| Error::kernel("start", "thread netns-visitor", e))?;
    Ok(())
}

fn serve(home: &Home, first: Job) {
    let (sender, jobs) = mpsc::channel();
    let mut job = first;
    loop {
        if matches!(job(home), Stay::Lost) {
            return;
        }
        {
            let mut visitors = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
            if visitors.len() >= IDLE {
                return;
            }
            visitors.push(sender.clone());
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
