//! What the processes of a container read from a pipe.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use rustix::{event::epoll::EventFlags, io::Errno};
use tokio::{io::AsyncWrite, task::coop};

use super::{
    PipeCalls, PipeFile, close_counted,
    threads::{self, Ready, Threads},
};

/// Most bytes that are taken before they are in the pipe.
const PIECE: usize = 64 << 10;

/// The write end of a pipe. A write is done when it is flushed. Dropping it closes it, on another thread, after what
/// was taken is written, as far as there is room.
pub(crate) struct PipeWriter(Arc<Writing>);

struct Writing {
    threads: &'static Threads,
    calls: Arc<PipeCalls>,
    state: Mutex<State>,
}

struct State {
    /// `None` after a failure.
    pipe: Option<Arc<PipeFile>>,
    token: u64,
    /// What is to be written; a thread that writes has taken it out.
    bytes: Vec<u8>,
    /// There is something to be written, here or at a thread.
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
        let writing = Arc::new(Writing { threads, calls, state: Mutex::new(state) });
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
            // Nobody is left to learn that it fails.
            let _ = writing.write(&pipe, &bytes);
            writing.calls.during(|| drop(pipe));
        });
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let turn = ready!(coop::poll_proceed(context));
        let mut state = self.0.lock();
        ready!(state.written(context))?;
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
        self.0.lock().written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl Writing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what there is room for: what is left of it, or the failure.
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

impl Ready for Writing {
    fn ready(&self) {
        let (pipe, mut bytes) = {
            let mut state = self.lock();
            (state.pipe.clone(), mem::take(&mut state.bytes))
        };
        let Some(pipe) = pipe.filter(|_| !bytes.is_empty()) else { return };
        let left = self.write(&pipe, &bytes);
        let mut failed = None;
        {
            let mut state = self.lock();
            let armed = match left {
                Ok(0) => {
                    bytes.clear();
                    state.is_writing = false;
                    Ok(())
                }
                Ok(left) => {
                    bytes.drain(..bytes.len() - left);
                    self.threads.arm(&*pipe, state.token, EventFlags::OUT)
                }
                Err(errno) => Err(errno.into()),
            };
            // Its room is used again.
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
        // The last of them closes it, which may block: after the writer was woken.
        self.calls.during(|| drop((failed, pipe)));
    }
}

impl State {
    /// All is in the pipe that was taken.
    fn written(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
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
