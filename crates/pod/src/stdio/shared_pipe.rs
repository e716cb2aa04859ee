//! Pipes whose other end is open in a process of a container.
//!
//! A pipe has one mutex in the kernel. splice(2) between a pipe and a socket sleeps with this mutex held while the
//! socket has no data, or no room, for as long as the calling process likes. In the meantime open(2) of a FIFO,
//! read(2), write(2), tee(2), `FIONREAD` and close(2) block, uninterruptibly, even with `O_NONBLOCK`; poll(2) and epoll
//! take no lock. This needs no privilege, and any process that has the pipe can do it, no matter for which process the
//! pipe was created.
//!
//! ```text
//! PipeReader ◀── bytes ── threads ◀── read ── pipe ◀── container
//! PipeWriter ─── bytes ─▶ threads ── write ─▶ pipe ──▶ container      open, close: threads too
//! ```
//! So only dedicated threads ([`threads`]) make calls on such a pipe. [`PipeCalls`] counts the calls that have not
//! returned for each container: a container with too many blocked calls is refused further exec sessions, so
//! that it does not use up the threads.

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

use super::{
    pipe_holders,
    pipe_record::{PipeFile, PipeRecord},
};
use crate::{Error, error::failed, operation::blocking, store::PipeCalls};
pub(crate) use reader::PipeReader;
use reader::ReadAhead;
pub(crate) use writer::PipeWriter;

/// How long an open of a FIFO is waited for before it is checked whether a process keeps it locked.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the number of blocked calls on pipes of all containers.
pub(crate) fn blocked_calls() -> usize {
    threads::blocked()
}

/// An end of a pipe that is not read or written yet. When it is dropped, another thread closes it.
pub(crate) struct SharedPipe {
    file: Option<PipeFile>,
    calls: Arc<PipeCalls>,
}

impl SharedPipe {
    /// Wraps a FIFO, which has a name.
    pub(crate) fn new(file: OwnedFd, calls: &Arc<PipeCalls>) -> Self {
        Self { file: Some(file.into()), calls: Arc::clone(calls) }
    }

    /// Opens a FIFO that processes of the container may have open; `None` if `open` does not find it. Fails after
    /// [`OPEN_TIMEOUT`] if a process keeps it locked, else not before `until`, so that no output is lost on a slow
    /// machine.
    pub(crate) async fn open(
        calls: &Arc<PipeCalls>,
        fifo: &Path,
        until: Instant,
        open: impl FnOnce(&Path) -> Result<Option<OwnedFd>, Error> + Send + 'static,
    ) -> Result<Option<Self>, Error> {
        let (calls, path) = (Arc::clone(calls), fifo.to_owned());
        let (opened, mut open_done) = oneshot::channel();
        threads::run(move || {
            let pipe = calls.during(|| open(&path)).map(|file| file.map(|file| Self::new(file, &calls)));
            // If the caller is gone, the pipe is closed with the message.
            let _ = opened.send(pipe);
        });
        let begin = Instant::now();
        loop {
            match timeout(OPEN_TIMEOUT, &mut open_done).await {
                Ok(Ok(pipe)) => return pipe,
                Ok(Err(_)) => return Err(Error::internal("open a FIFO: its thread ended")),
                Err(_) => {
                    let fifo = fifo.to_owned();
                    if blocking(move || Ok(pipe_holders::is_held(&fifo))).await? {
                        return Err(Error::state(
                            "open a FIFO: it is held inside the kernel by a process of the container (splice(2)); kill \
                             it or stop the container",
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

    /// Wraps a pipe without a name, and records it.
    pub(crate) fn anonymous(file: OwnedFd, calls: &Arc<PipeCalls>, record: &Arc<PipeRecord>) -> Self {
        Self { file: Some(record.add(file)), calls: Arc::clone(calls) }
    }

    /// Returns a reader that reads ahead by at most one piece.
    pub(crate) fn reader(self) -> Result<PipeReader, Error> {
        self.read(ReadAhead::Piece)
    }

    /// Returns a reader that reads everything as it comes, and keeps the first `keep` bytes.
    pub(crate) fn reader_of_all(self, keep: usize) -> Result<PipeReader, Error> {
        self.read(ReadAhead::All { keep })
    }

    fn read(mut self, ahead: ReadAhead) -> Result<PipeReader, Error> {
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

    /// Returns the file. The caller must close it with [`close_all`] or send it to the monitor.
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

/// Closes a pipe of a container on another thread, and counts the call.
fn close_counted(pipe: impl Send + 'static, calls: Arc<PipeCalls>) {
    threads::run(move || calls.during(|| drop(pipe)));
}

/// Reports whether processes of a container have the other end of a file with this role, or the same end.
pub(crate) fn is_shared(role: Role) -> bool {
    use Role::{Stderr, StderrRead, Stdin, StdinHold, Stdout, StdoutRead};
    matches!(role, Stdin | Stdout | Stderr | StdinHold | StdoutRead | StderrRead)
}

/// Closes files that were sent to the monitor: pipes of containers on another thread, the rest at once. The message
/// holds duplicates, so these are hardly ever the last descriptors, and do not wait behind those that are
/// ([`close_all`]).
pub(crate) fn close_attachments(files: Attachments) {
    let pipes: Vec<OwnedFd> = files.into_iter().filter(|(role, _)| is_shared(*role)).map(|(_, file)| file).collect();
    if !pipes.is_empty() {
        threads::run(move || drop(pipes));
    }
}

/// Maximum number of threads that close pipes of exited containers and processes. Further pipes stay open until one of
/// them is done: a container that restarts all the time must not occupy more threads each time.
const CLOSING_MAX: usize = 64;

struct Closing {
    /// The files of one container each.
    waiting: VecDeque<Vec<OwnedFd>>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { waiting: VecDeque::new(), threads: 0 });

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes pipes of a container one after the other on another thread.
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
