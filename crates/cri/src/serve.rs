use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cri_proto::{
    MESSAGE_MAX,
    pinion::pinion_server::PinionServer,
    server::{image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer},
};
use readiness::Connection;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixListener,
};
use tokio_stream::{Stream, wrappers::UnixListenerStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Server, server::Connected};
use tower::layer::layer_fn;

use crate::{Daemon, Streaming, deadline::Deadlines, handler::State, image::Images, native::Native, runtime::Runtime};

/// The error of a socket that cannot be served any longer.
#[derive(Debug, thiserror::Error)]
#[error("serve gRPC: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// The stream of incoming connections. Dropping it cancels the token for the end of accepting.
struct Incoming {
    listener: UnixListenerStream,
    _closed: DropGuard,
}

impl Stream for Incoming {
    type Item = io::Result<AcceptedConnection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = ready!(Pin::new(&mut self.listener).poll_next(context));
        Poll::Ready(accepted.map(|stream| stream?.into_std().and_then(Connection::new).map(AcceptedConnection)))
    }
}

/// A client's connection in the form that tonic requires.
struct AcceptedConnection(Connection);

impl Connected for AcceptedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for AcceptedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for AcceptedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Serves the two services of the CRI and our own on one socket until `stop` resolves. Running requests are completed
/// first; sessions of exec, attach and port-forward end then. `closed` is cancelled when no more connections are
/// accepted: clients that connect afterwards wait in the listener's queue for as long as a process holds the listener.
///
/// `daemon` is the program that runs the engine, for the RPCs of `pinion.v1`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: UnixListener,
    engine: pod::Engine,
    streaming: Streaming,
    daemon: Arc<dyn Daemon>,
    closed: CancellationToken,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let incoming = Incoming { listener: UnixListenerStream::new(listener), _closed: closed.drop_guard() };
    let state = Arc::new(State {
        rows: crate::rows::RowCaches::new(engine.clone()),
        engine,
        streaming: streaming.clone(),
        daemon,
    });
    state.engine.resume_cleanup();
    let runtime = RuntimeServiceServer::new(Runtime(state.clone()));
    let images = ImageServiceServer::new(Images(state.clone()));
    let native = PinionServer::new(Native(state));
    // Cancelled when the servers have to stop.
    let stopping = CancellationToken::new();
    let shutdown = async {
        stop.await;
        stopping.cancel();
    };
    let grpc = Server::builder()
        .layer(layer_fn(Deadlines))
        .add_service(runtime.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(images.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(native.max_decoding_message_size(MESSAGE_MAX))
        .serve_with_incoming_shutdown(incoming, shutdown);
    let serve_grpc = async {
        let outcome = grpc.await;
        stopping.cancel();
        outcome
    };
    let (outcome, ()) = tokio::join!(serve_grpc, streaming.serve(stopping.cancelled()));
    Ok(outcome?)
}
