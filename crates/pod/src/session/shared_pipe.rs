//! Pipes whose other end a process of a container has.
//!
//! A pipe has one mutex in the kernel. splice(2) between a pipe and a socket sleeps with it while the socket has
//! nothing to read, or no room, for as long as the process that called it likes. In the meantime open(2) of a FIFO,
//! read(2), write(2), tee(2), `FIONREAD` and close(2) block, uninterruptibly, also with `O_NONBLOCK`; poll(2) and epoll
//! take no lock. No privilege is needed for that, and any process that has the pipe can do it, whichever it was made
//! for.
//!
//! ```text
//! PipeReader ◀── bytes ── threads ◀── read ── pipe ◀── container
//! PipeWriter ─── bytes ─▶ threads ── write ─▶ pipe ──▶ container      open, close: threads too
//! ```
//! So nothing is done here with such a pipe but by threads for it ([`threads`]). [`PipeCalls`] counts for each
//! container what did not return yet: one that holds [`BLOCKED_MAX`] is refused further commands, so that it does not
//! use up the threads.

mod reader;
mod threads;
mod writer;

use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use monitor_api::{Attachments, Role};
use rustix::fd::OwnedFd;
use tokio::{sync::oneshot, time::timeout};

use super::pipe_record::{PipeFile, PipeRecord};
use crate::{Error, engine::blocking, error::failed, pipe_holders};
use reader::Ahead;
pub(crate) use reader::PipeReader;
pub(crate) use writer::PipeWriter;

/// A call that did not return for so long is blocked: others return within microseconds.
const BLOCKED: Duration = Duration::from_millis(100);
/// As many blocked calls has a container that is refused further commands.
const BLOCKED_MAX: usize = 8;
/// How long an open of a FIFO is waited for before it is looked who keeps it locked.
const OPEN: Duration = Duration::from_secs(2);

/// Calls on the pipes of one container that did not return yet.
#[derive(Default)]
pub(crate) struct PipeCalls(Mutex<Running>);

#[derive(Default)]
struct Running {
    last_number: u64,
    begun: Vec<(u64, Instant)>,
}

impl PipeCalls {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call while it runs.
    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        /// Also where the call panics.
        struct Over<'a>(&'a PipeCalls, u64);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.lock().begun.retain(|(begun, _)| *begun != self.1);
            }
        }
        let number = {
            let mut running = self.lock();
            running.last_number += 1;
            let number = running.last_number;
            running.begun.push((number, Instant::now()));
            number
        };
        let _over = Over(self, number);
        call()
    }

    /// Refuses further pipes of a container that holds too many.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let blocked = self.lock().begun.iter().filter(|(_, begun)| begun.elapsed() >= BLOCKED).count();
        if blocked < BLOCKED_MAX {
            return Ok(());
        }
        Err(Error::state(format!(
            "{blocked} earlier commands' pipes are held inside the kernel by a process of the container (splice(2)); end it or \
             stop the container"
        )))
    }

    /// Opens a FIFO that processes of the container may have open; `None` where `open` finds none. Fails after
    /// [`OPEN`]; where none of them keeps it locked, not before `until`: on a slow machine no output is lost.
    pub(crate) async fn open(
        self: &Arc<Self>,
        fifo: &Path,
        until: Instant,
        open: impl FnOnce(&Path) -> Result<Option<OwnedFd>, Error> + Send + 'static,
    ) -> Result<Option<SharedPipe>, Error> {
        let (calls, path) = (Arc::clone(self), fifo.to_owned());
        let (opened, mut open_done) = oneshot::channel();
        threads::run(move || {
            let pipe = calls.during(|| open(&path)).map(|file| file.map(|file| SharedPipe::new(file, &calls)));
            // A caller that has gone leaves the pipe to be closed.
            let _ = opened.send(pipe);
        });
        let begin = Instant::now();
        loop {
            match timeout(OPEN, &mut open_done).await {
                Ok(Ok(pipe)) => return pipe,
                Ok(Err(_)) => return Err(Error::internal("open a FIFO: its thread ended")),
                Err(_) => {
                    let fifo = fifo.to_owned();
                    if blocking(move || Ok(pipe_holders::is_held(&fifo))).await? {
                        return Err(Error::state(
                            "open a FIFO: it is held inside the kernel by a process of the container (splice(2)); end it or \
                             stop the container",
                        ));
                    }
                }
            }
            if Instant::now() >= until {
                let waited = begin.elapsed().as_secs();
                return Err(Error::state(format!("open a FIFO: no answer from the kernel for {waited} s")));
            }
        }
    }
}

/// Calls on pipes of any container that are blocked.
pub(crate) fn blocked_calls() -> usize {
    threads::blocked()
}

/// An end that nobody reads or writes yet. Dropping it closes it, on another thread.
pub(crate) struct SharedPipe {
    file: Option<PipeFile>,
    calls: Arc<PipeCalls>,
}

impl SharedPipe {
    /// One that has a name.
    pub(crate) fn new(file: OwnedFd, calls: &Arc<PipeCalls>) -> Self {
        Self { file: Some(file.into()), calls: Arc::clone(calls) }
    }

    /// One that has none. It is on record.
    pub(crate) fn anonymous(file: OwnedFd, calls: &Arc<PipeCalls>, record: &Arc<PipeRecord>) -> Self {
        Self { file: Some(record.enter(file)), calls: Arc::clone(calls) }
    }

    /// Reads no more than is taken.
    pub(crate) fn reader(self) -> Result<PipeReader, Error> {
        self.read(Ahead::Piece)
    }

    /// Reads all at once, and keeps the first `keep` bytes.
    pub(crate) fn reader_of_all(self, keep: usize) -> Result<PipeReader, Error> {
        self.read(Ahead::All { keep })
    }

    fn read(mut self, ahead: Ahead) -> Result<PipeReader, Error> {
        let (file, threads) = self.take().map_err(failed("read a pipe"))?;
        PipeReader::new(file, Arc::clone(&self.calls), threads, ahead).map_err(|(error, file)| {
            self.file = Some(file);
            failed("read a pipe")(error)
        })
    }

    pub(crate) fn writer(mut self) -> Result<PipeWriter, Error> {
        let (file, threads) = self.take().map_err(failed("write to a pipe"))?;
        PipeWriter::new(file, Arc::clone(&self.calls), threads).map_err(|(error, file)| {
            self.file = Some(file);
            failed("write to a pipe")(error)
        })
    }

    /// The file, for others to own: it is closed by [`close_all`] or sent to the monitor.
    pub(crate) fn into_file(mut self) -> Option<OwnedFd> {
        self.file.take().map(PipeFile::into_file)
    }

    fn take(&mut self) -> io::Result<(PipeFile, &'static threads::Threads)> {
        let threads = threads::threads()?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        rustix::io::ioctl_fionbio(file, true)?;
        self.file.take().map(|file| (file, threads)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for SharedPipe {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            close_counted(file, Arc::clone(&self.calls));
        }
    }
}

/// Closes a pipe of a container on another thread.
fn close_counted(pipe: impl Send + 'static, calls: Arc<PipeCalls>) {
    threads::run(move || calls.during(|| drop(pipe)));
}

/// Whether a container's processes have the other end of what has this role, or this very end.
pub(crate) fn is_shared(role: Role) -> bool {
    use Role::{Stderr, StderrRead, Stdin, StdinHold, Stdout, StdoutRead};
    matches!(role, Stdin | Stdout | Stderr | StdinHold | StdoutRead | StderrRead)
}

/// Closes what was sent to the monitor: the pipes of containers among these on another thread, and the rest at once.
/// Copies are on their way: these are hardly ever the last, so they do not wait for those that are ([`close_all`]).
pub(crate) fn close_attachments(files: Attachments) {
    let pipes: Vec<OwnedFd> = files.into_iter().filter(|(role, _)| is_shared(*role)).map(|(_, file)| file).collect();
    if !pipes.is_empty() {
        threads::run(move || drop(pipes));
    }
}

/// Most closes of pipes that belong to no running command. What is beyond waits for one of them, and stays open until
/// then: a container that starts again and again must not leave more threads each time.
const CLOSING_MAX: usize = 64;

struct Closing {
    /// Of one container each.
    waiting: VecDeque<Vec<OwnedFd>>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { waiting: VecDeque::new(), threads: 0 });

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes pipes that a container has or had, one after the other, on another thread.
pub(crate) fn close_all(files: Vec<OwnedFd>) {
    if files.is_empty() {
        return;
    }
    let mut closing = closing();
    closing.waiting.push_back(files);
    if closing.threads < CLOSING_MAX {
        closing.threads += 1;
        drop(closing);
        threads::run(close_waiting);
    }
}

fn close_waiting() {
    loop {
        let files = {
            let mut closing = closing();
            let files = closing.waiting.pop_front();
            closing.threads -= usize::from(files.is_none());
            files
        };
        match files {
            Some(files) => drop(files),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;
