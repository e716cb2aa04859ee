use std::{
    io::{self, IoSlice},
    net::Shutdown,
    os::unix::net::UnixStream,
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};

use crate::{WriteReadiness, watch};

/// A connection over a Unix socket.
#[derive(Debug)]
pub struct Connection {
    stream: AsyncFd<UnixStream>,
    write_readiness: WriteReadiness,
}

impl Connection {
    /// Converts a socket. Must be called within a runtime.
    ///
    /// # Errors
    /// When the socket cannot be registered.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: watch(stream, Interest::READABLE)?, write_readiness: WriteReadiness::default() })
    }

    fn write_pieces(&mut self, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match rustix::io::writev(self.stream.get_ref(), pieces) {
                Ok(length) => return Poll::Ready(Ok(length)),
                Err(Errno::AGAIN) => ready!(self.write_readiness.poll(self.stream.get_ref(), context)),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.stream.poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            match rustix::io::read(self.stream.get_ref(), &mut *free) {
                Ok(length) => {
                    // A read that is shorter than the buffer has emptied the socket. The end of the stream and further
                    // data cause a new event.
                    if length > 0 && length < free.len() {
                        guard.clear_ready();
                    }
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_pieces(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_pieces(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Has nothing to flush, because writes are not buffered.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_readiness.stop();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.get_ref().shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome),
        }
    }
}

#[cfg(test)]
mod tests;
