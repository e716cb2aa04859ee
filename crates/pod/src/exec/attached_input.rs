//! Input of an attached client.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use crate::{monitor::Monitor, stdio::Input};

/// Input of an attached client. With `once`, the end of this input closes the input of the container. A pipe that is
/// shut down is closed, because the process sees the end of file only then.
pub(crate) struct AttachedInput {
    input: Option<Input>,
    once: Option<(Monitor, String)>,
}

impl AttachedInput {
    pub(crate) fn new(input: Input, once: Option<(Monitor, String)>) -> Self {
        Self { input: Some(input), once }
    }

    fn close(&mut self) {
        self.input = None;
        let (Some((monitor, id)), Ok(runtime)) = (self.once.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            if let Err(error) = monitor.close_stdin(&id).await {
                tracing::warn!("close the input of container {id}: {error}");
            }
        });
    }
}

impl Drop for AttachedInput {
    fn drop(&mut self) {
        self.close();
    }
}

impl AsyncWrite for AttachedInput {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.as_mut().poll_flush(context));
        self.get_mut().close();
        Poll::Ready(flushed)
    }
}
