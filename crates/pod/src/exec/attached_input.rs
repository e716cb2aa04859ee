//! Input of an attached client.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use crate::{
    Error,
    container::{driver::Driver, shim},
    monitor::Monitor,
    stdio::Input,
    store::Container,
};

/// Input of an attached client. A pipe that is shut down is closed, because the process sees the end of file only then.
pub(crate) struct AttachedInput {
    input: Option<Input>,
    on_close: Option<OnClose>,
}

/// Who else has to close an input when the client ends it.
pub(crate) enum OnClose {
    /// The monitor, which keeps that of a container open.
    Monitor(Monitor, String),
    /// The monitor and the shim of a container.
    Shim(Monitor, Arc<Container>),
    /// The shim, which keeps that of a command open.
    ShimCommand(Arc<Container>, String),
}

impl OnClose {
    /// For a command in a container.
    pub(crate) fn of_command(container: &Arc<Container>, command: &str) -> Option<Self> {
        match Driver::of(container) {
            Driver::Monitor | Driver::Vm => None,
            Driver::Shim => Some(Self::ShimCommand(Arc::clone(container), command.to_owned())),
        }
    }

    /// For the first process of a container.
    pub(crate) fn of_container(monitor: &Monitor, container: &Arc<Container>) -> Self {
        match Driver::of(container) {
            // The guest sees the end of the FIFO.
            Driver::Monitor | Driver::Vm => Self::Monitor(monitor.clone(), container.id().to_string()),
            Driver::Shim => Self::Shim(monitor.clone(), Arc::clone(container)),
        }
    }

    async fn close(self) -> Result<(), Error> {
        match self {
            Self::Monitor(monitor, id) => monitor.close_stdin(&id).await,
            Self::Shim(monitor, container) => {
                monitor.close_stdin(container.id().as_str()).await?;
                shim::close_stdin(&container, "").await
            }
            Self::ShimCommand(container, command) => shim::close_stdin(&container, &command).await,
        }
    }
}

impl AttachedInput {
    pub(crate) fn new(input: Input, on_close: Option<OnClose>) -> Self {
        Self { input: Some(input), on_close }
    }

    fn close(&mut self) {
        self.input = None;
        let (Some(on_close), Ok(runtime)) = (self.on_close.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            if let Err(error) = on_close.close().await {
                // Its process may be gone by now.
                tracing::debug!("close the input of a container: {error}");
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
