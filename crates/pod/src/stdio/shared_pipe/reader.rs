//! Reader of a pipe that processes of a container write to.

use std::{
    cell::RefCell,
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll::EventFlags, poll},
    io::Errno,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    task::coop,
};

use super::{
    PipeFile, close_counted,
    threads::{Ready, Threads},
};
use crate::store::PipeCalls;

/// Maximum number of bytes of one read(2): the capacity of an ordinary pipe.
const PIECE: usize = 64 << 10;
/// Maximum number of bytes that are read before other pipes get a turn.
const TURN: usize = 1 << 20;

thread_local! {
    static PIECE_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// The read end of a pipe. When it is dropped, another thread closes it.
pub(crate) struct PipeReader(Arc<SharedReader>);

/// How much is read ahead of the caller.
#[derive(Clone, Copy)]
pub(super) enum ReadAhead {
    /// One piece: a writer that is faster than the reader waits.
    Piece,
    /// Everything. Bytes beyond `keep` are read and discarded: a process that cannot write would never exit.
    All { keep: usize },
}

struct SharedReader {
    threads: &'static Threads,
    calls: Arc<PipeCalls>,
    ahead: ReadAhead,
    state: Mutex<State>,
}

struct State {
    /// `None` after the end of the stream or a failure.
    pipe: Option<Arc<PipeFile>>,
    token: u64,
    /// Whether a thread is inside [`SharedReader::read`]. If not, the pipe is watched.
    is_reading: bool,
    /// Whether the pipe is not watched until the caller has taken the bytes.
    is_full: bool,
    bytes: Vec<u8>,
    /// Number of bytes read, including discarded ones.
    total: usize,
    failed: Option<io::Error>,
    is_broken: bool,
    waker: Option<Waker>,
    /// Whether the caller waits only for the end of the stream.
    only_end: bool,
}

impl PipeReader {
    pub(super) fn new(
        pipe: PipeFile,
        calls: Arc<PipeCalls>,
        threads: &'static Threads,
        ahead: ReadAhead,
    ) -> Result<Self, (io::Error, PipeFile)> {
        let reading = Arc::new(SharedReader {
            threads,
            calls,
            ahead,
            state: Mutex::new(State {
                pipe: None,
                token: 0,
                is_reading: false,
                is_full: false,
                bytes: Vec::new(),
                total: 0,
                failed: None,
                is_broken: false,
                waker: None,
                only_end: false,
            }),
        });
        // Locked until the pipe is stored: it may be readable already.
        let mut state = reading.lock();
        match threads.watch(&pipe, EventFlags::IN, Arc::clone(&reading) as _) {
            Ok(token) => state.token = token,
            Err(error) => return Err((error, pipe)),
        }
        state.pipe = Some(Arc::new(pipe));
        drop(state);
        Ok(Self(reading))
    }

    /// Waits for the end of the stream, or a failure to read it.
    pub(crate) async fn ended(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_over() {
                return Poll::Ready(());
            }
            state.wait(context, true);
            Poll::Pending
        })
        .await;
    }

    /// Waits until everything is read that was in the pipe at the time of the call. Data that is written in the
    /// meantime is read, too, up to `most` bytes in total.
    pub(crate) async fn drained(&self, most: usize) {
        let before = self.0.lock().total;
        poll_fn(|context| {
            let mut state = self.0.lock();
            let Some(pipe) = state.pipe.as_ref().filter(|_| !state.is_over()) else { return Poll::Ready(()) };
            let is_empty = !state.is_reading && !is_readable(pipe);
            if is_empty || state.total - before >= most {
                return Poll::Ready(());
            }
            state.wait(context, false);
            Poll::Pending
        })
        .await;
    }

    /// Returns the bytes that were read and kept. Fails if the stream could not be read completely.
    pub(crate) fn into_bytes(self) -> io::Result<Vec<u8>> {
        let mut state = self.0.lock();
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(mem::take(&mut state.bytes)),
        }
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let (pipe, token) = {
            let mut state = self.0.lock();
            (state.pipe.take(), state.token)
        };
        if let Some(pipe) = pipe {
            self.0.threads.forget(token);
            close_counted(pipe, Arc::clone(&self.0.calls));
        }
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let turn = ready!(coop::poll_proceed(context));
        let mut state = self.0.lock();
        if state.bytes.is_empty() && !state.is_over() {
            state.wait(context, false);
            return Poll::Pending;
        }
        turn.made_progress();
        let length = state.bytes.len().min(buffer.remaining());
        buffer.put_slice(&state.bytes[..length]);
        state.bytes.drain(..length);
        if state.is_full && state.bytes.is_empty() {
            state.is_full = false;
            if !state.is_reading {
                self.0.arm(&mut state);
            }
        }
        match state.failed.take_if(|_| length == 0) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl SharedReader {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the pipe again.
    fn arm(&self, state: &mut State) {
        let Some(pipe) = &state.pipe else { return };
        if let Err(error) = self.threads.arm(&**pipe, state.token, EventFlags::IN) {
            state.failed = Some(error);
            // No event will be delivered anymore: the stream is over even after the failure was taken.
            state.is_broken = true;
        }
    }

    /// Reads what is available. At the end of the stream it returns the pipe, which the caller must close.
    fn read(&self, pipe: &PipeFile, buffer: &mut [u8]) -> Option<Arc<PipeFile>> {
        let mut turn = TURN;
        loop {
            let result = self.calls.during(|| rustix::io::read(pipe, &mut *buffer));
            let mut state = self.lock();
            let continues = match result {
                Ok(0) => return state.pipe.take(),
                Ok(length) => {
                    state.add(&buffer[..length], self.ahead);
                    turn = turn.saturating_sub(length);
                    // A short read means that the pipe is empty.
                    turn > 0 && length == buffer.len() && !state.is_full
                }
                Err(Errno::INTR) => true,
                Err(Errno::AGAIN) => false,
                Err(errno) => {
                    state.failed = Some(errno.into());
                    return state.pipe.take();
                }
            };
            if !continues || state.pipe.is_none() {
                return None;
            }
        }
    }
}

impl Ready for SharedReader {
    fn ready(&self) {
        let pipe = {
            let mut state = self.lock();
            state.is_reading = state.pipe.is_some();
            state.pipe.clone()
        };
        let Some(pipe) = pipe else { return };
        let ended = PIECE_BUFFER.with_borrow_mut(|buffer| self.read(&pipe, buffer));
        let token = {
            let mut state = self.lock();
            state.is_reading = false;
            if !state.is_full {
                self.arm(&mut state);
            }
            state.wake();
            state.token
        };
        if ended.is_some() {
            self.threads.forget(token);
        }
        // Dropping the last reference closes the pipe, which may block: done after all waiters were woken.
        self.calls.during(|| drop((ended, pipe)));
    }
}

impl State {
    /// Reports whether the stream has ended or failed.
    fn is_over(&self) -> bool {
        self.pipe.is_none() || self.failed.is_some() || self.is_broken
    }

    fn wait(&mut self, context: &Context<'_>, only_end: bool) {
        self.only_end = only_end;
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.waker = Some(context.waker().clone()),
        }
    }

    fn wake(&mut self) {
        if self.is_over() || !self.only_end {
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn add(&mut self, bytes: &[u8], ahead: ReadAhead) {
        self.total += bytes.len();
        let keep_length = match ahead {
            ReadAhead::Piece => bytes.len(),
            ReadAhead::All { keep } => bytes.len().min(keep.saturating_sub(self.bytes.len())),
        };
        self.bytes.extend_from_slice(&bytes[..keep_length]);
        self.is_full = matches!(ahead, ReadAhead::Piece);
    }
}

/// Reports whether a pipe is readable, without taking its lock.
fn is_readable(pipe: &PipeFile) -> bool {
    let mut files = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
