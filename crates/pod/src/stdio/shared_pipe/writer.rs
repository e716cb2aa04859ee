//! Writer of a pipe that processes of a container read from.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use rustix::{event::epoll::EventFlags, io::Errno};
use tokio::{io::AsyncWrite, task::coop};

use super::{
    PipeFile, close_counted,
    threads::{self, Ready, Threads},
};
use crate::store::PipeCalls;

/// Maximum number of bytes that are accepted before they are in the pipe.
const PIECE: usize = 64 << 10;

/// The write end of a pipe. A write is complete when it is flushed. When the writer is dropped, another thread writes
/// the accepted bytes as far as there is room, and closes the pipe.
pub(crate) struct PipeWriter(Arc<SharedWriter>);

struct SharedWriter {
    threads: &'static Threads,
    calls: Arc<PipeCalls>,
    state: Mutex<State>,
}

struct State {
    /// `None` after a failure.
    pipe: Option<Arc<PipeFile>>,
    token: u64,
    /// Bytes that are not written yet. A thread that writes takes them out.
    bytes: Vec<u8>,
    /// Whether bytes are not written yet, here or in a thread.
    is_writing: bool,
    failed: Option<io::Error>,
    waker: Option<Waker>,
}

impl PipeWriter {
    pub(super) fn new(
        pipe: PipeFile,
        calls: Arc<PipeCalls>,
        threads: &'static Threads,
    ) -> Result<Self, (io::Error, PipeFile)> {
        let state = State { pipe: None, token: 0, bytes: Vec::new(), is_writing: false, failed: None, waker: None };
        let writing = Arc::new(SharedWriter { threads, calls, state: Mutex::new(state) });
        let mut state = writing.lock();
        match threads.watch(&pipe, EventFlags::empty(), Arc::clone(&writing) as _) {
            Ok(token) => state.token = token,
            Err(error) => return Err((error, pipe)),
        }
        state.pipe = Some(Arc::new(pipe));
        drop(state);
        Ok(Self(writing))
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let (pipe, token, bytes) = {
            let mut state = self.0.lock();
            (state.pipe.take(), state.token, mem::take(&mut state.bytes))
        };
        self.0.threads.forget(token);
        let Some(pipe) = pipe else { return };
        if bytes.is_empty() {
            return close_counted(pipe, Arc::clone(&self.0.calls));
        }
        let writing = Arc::clone(&self.0);
        threads::run(move || {
            // No caller is left that could handle an error.
            let _ = writing.write(&pipe, &bytes);
            writing.calls.during(|| drop(pipe));
        });
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let turn = ready!(coop::poll_proceed(context));
        let mut state = self.0.lock();
        ready!(state.poll_written(context))?;
        turn.made_progress();
        let State { pipe: Some(pipe), token, .. } = &*state else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.0.threads.arm(&**pipe, *token, EventFlags::OUT)?;
        let length = bytes.len().min(PIECE);
        state.bytes.extend_from_slice(&bytes[..length]);
        state.is_writing = true;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl SharedWriter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as much as there is room for, and returns the number of bytes that remain.
    fn write(&self, pipe: &PipeFile, mut bytes: &[u8]) -> Result<usize, Errno> {
        while !bytes.is_empty() {
            match self.calls.during(|| rustix::io::write(pipe, bytes)) {
                Ok(length) => bytes = &bytes[length..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(bytes.len())
    }
}

impl Ready for SharedWriter {
    fn ready(&self) {
        let (pipe, mut bytes) = {
            let mut state = self.lock();
            (state.pipe.clone(), mem::take(&mut state.bytes))
        };
        let Some(pipe) = pipe.filter(|_| !bytes.is_empty()) else { return };
        let remaining = self.write(&pipe, &bytes);
        let mut failed = None;
        {
            let mut state = self.lock();
            let armed = match remaining {
                Ok(0) => {
                    bytes.clear();
                    state.is_writing = false;
                    Ok(())
                }
                Ok(remaining) => {
                    bytes.drain(..bytes.len() - remaining);
                    self.threads.arm(&*pipe, state.token, EventFlags::OUT)
                }
                Err(errno) => Err(errno.into()),
            };
            // The buffer is reused.
            state.bytes = bytes;
            if let Err(error) = armed {
                state.failed = Some(error);
                state.is_writing = false;
                failed = state.pipe.take();
            }
            if !state.is_writing {
                state.waker.take().into_iter().for_each(Waker::wake);
            }
        }
        // Dropping the last reference closes the pipe, which may block: done after the writer was woken.
        self.calls.during(|| drop((failed, pipe)));
    }
}

impl State {
    /// Waits until all accepted bytes are in the pipe.
    fn poll_written(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if !self.is_writing {
            return Poll::Ready(Ok(()));
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
