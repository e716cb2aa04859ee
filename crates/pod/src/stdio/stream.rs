//! Async streams over pipes and terminals.

use std::{
    io,
    os::unix::net,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use readiness::watch;
use rustix::{fd::BorrowedFd, io::Errno};
use syscall::terminal_output::read_terminal;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    net::UnixStream,
};

use super::{
    shared_pipe::{PipeReader, PipeWriter, SharedPipe},
    terminal::Terminal,
};
use crate::{Error, error::failed};

fn closed() -> Error {
    Error::state("its terminal is closed")
}

/// Writer of a process's standard input.
pub(crate) enum Input {
    Pipe(PipeWriter),
    Terminal(TerminalStream),
}

/// Reader of a process's output.
pub(crate) enum Output {
    Pipe(PipeReader),
    /// A copy of a container's output. Its other end is in the monitor, and not in a container.
    Copy(UnixStream),
    Terminal(TerminalStream),
}

impl Input {
    pub(crate) fn pipe(pipe: SharedPipe) -> Result<Self, Error> {
        pipe.writer().map(Self::Pipe)
    }
}

impl Output {
    pub(crate) fn pipe(pipe: SharedPipe) -> Result<Self, Error> {
        pipe.reader().map(Self::Pipe)
    }

    pub(crate) fn copy(socket: net::UnixStream) -> Result<Self, Error> {
        let watched = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        watched.map(Self::Copy).map_err(failed("read a copy of output"))
    }
}

impl AsyncRead for Output {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(context, buffer),
            Self::Copy(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Terminal(terminal) => terminal.poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Input {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(context, bytes),
            Self::Terminal(terminal) => terminal.poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_flush(context),
            Self::Terminal(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// The master side of a terminal, shared by a reader and a writer.
#[derive(Clone)]
pub(crate) struct TerminalStream(Arc<AsyncFd<Terminal>>);

impl TerminalStream {
    /// Returns a reader and a writer for the terminal.
    pub(crate) fn pair(terminal: Terminal) -> Result<(Self, Self), Error> {
        rustix::io::ioctl_fionbio(terminal.master().ok_or_else(closed)?, true)
            .map_err(failed("create a terminal non-blocking"))?;
        let stream = Self(Arc::new(
            watch(terminal, Interest::READABLE | Interest::WRITABLE).map_err(failed("watch a terminal"))?,
        ));
        Ok((stream.clone(), stream))
    }

    fn master(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.get_ref().master().ok_or_else(|| Errno::BADF.into())
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            match read_terminal(self.master()?, buffer.initialize_unfilled()) {
                Ok(n) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            match rustix::io::write(self.master()?, bytes) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                result => return Poll::Ready(result.map_err(Into::into)),
            }
        }
    }
}
