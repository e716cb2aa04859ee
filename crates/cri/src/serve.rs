use std::{future::Future, sync::Arc};

use cri_proto::{
    MESSAGE_MAX,
    pinion::pinion_server::PinionServer,
    v1::{image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::{answer::State, ended, image::Images, native::Native, runtime::Runtime, status::Rates};

/// The socket could not be served any longer.
#[derive(Debug, thiserror::Error)]
#[error("serve gRPC: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves the CRI's two services and our own on one socket until `stop` resolves; requests that run are answered first.
///
/// `daemon` is what `Info` tells of the program around the engine.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: UnixListener,
    engine: pod::Engine,
    daemon: serde_json::Value,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let state = Arc::new(State { engine, rates: Rates::default(), daemon });
    ended::recover(&state);
    let runtime = RuntimeServiceServer::new(Runtime(state.clone()));
    let images = ImageServiceServer::new(Images(state.clone()));
    let native = PinionServer::new(Native(state));
    Server::builder()
        .add_service(runtime.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(images.max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX))
        .add_service(native.max_decoding_message_size(MESSAGE_MAX))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await?;
    Ok(())
}
