use std::{future::Future, sync::Arc};

use cri_proto::{
    MESSAGE_MAX,
    pinion::pinion_server::PinionServer,
    server::{image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::{Daemon, Streaming, answer::State, ended, image::Images, native::Native, runtime::Runtime};

/// The socket could not be served any longer.
#[derive(Debug, thiserror::Error)]
#[error("serve gRPC: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves the CRI's two services and our own on one socket until `stop` resolves; requests that run are answered first.
/// Sessions of exec, attach and port-forward end then.
///
/// `daemon` is the program around the engine, for what `pinion.v1` tells and asks of it.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: UnixListener,
    engine: pod::Engine,
    streaming: Streaming,
    daemon: Arc<dyn Daemon>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let state = Arc::new(State { engine, rows: crate::rows::Encoded::default(), streaming: streaming.clone(), daemon });
    ended::recover(&state);
    let runtime = RuntimeServiceServer::new(Runtime(state.clone()));
    let images = ImageServiceServer::new(Images(state.clone()));
    let native = PinionServer::new(Native(state));
    // Resolves for all that serve.
    let over = CancellationToken::new();
    let told = async {
        stop.await;
        over.cancel();
    };
    let grpc = Server::builder()
        .add_service(runtime.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(images.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(native.max_decoding_message_size(MESSAGE_MAX))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), told);
    let ended = async {
        let ended = grpc.await;
        over.cancel();
        ended
    };
    let (ended, ()) = tokio::join!(ended, streaming.serve(over.cancelled()));
    Ok(ended?)
}
