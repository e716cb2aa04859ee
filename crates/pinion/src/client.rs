use std::{
    io,
    path::{Path, PathBuf},
};

use cri_proto::{
    MESSAGE_MAX,
    pinion::pinion_client::PinionClient,
    v1::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient},
};
use tonic::transport::Channel;

use crate::{
    Failure,
    daemon::config::{Config, DEFAULT_SOCKET},
    failure::ENGINE_FAILED,
};

/// A connection to the daemon, and the output format of the command. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The CRI's runtime service: pods and containers.
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    /// The CRI's image service.
    pub(crate) images: ImageServiceClient<Channel>,
    /// Pinion's own service, for what the CRI does not offer.
    pub(crate) native: PinionClient<Channel>,
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// Path of the daemon's socket.
    pub(crate) socket: PathBuf,
}

impl Client {
    /// Connects to the daemon. The error of a failed connection includes a hint for the user.
    pub(crate) async fn connect(socket: Option<PathBuf>, json: bool) -> Result<Self, Failure> {
        let socket = socket.unwrap_or_else(configured);
        let channel = cri_proto::connect(&socket).await.map_err(|error| unreachable(&socket, &error))?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX),
            images: ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX),
            native: PinionClient::new(channel).max_decoding_message_size(MESSAGE_MAX),
            json,
            socket,
        })
    }
}

/// Returns the socket path from the configuration of this machine, or the default if the configuration is invalid: the
/// daemon reports that.
fn configured() -> PathBuf {
    Config::load(None).map_or_else(|_| PathBuf::from(DEFAULT_SOCKET), |config| config.socket)
}

fn unreachable(socket: &Path, error: &tonic::transport::Error) -> Failure {
    let socket = socket.display();
    let message = match cause(error).map(io::Error::kind) {
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            format!("connect to {socket}: no daemon is listening; start one with: pinion serve")
        }
        Some(io::ErrorKind::PermissionDenied) => {
            format!("connect to {socket}: permission denied; run pinion as root: sudo pinion …")
        }
        _ => format!("connect to {socket}: {error}"),
    };
    Failure::new(message).with_code(ENGINE_FAILED)
}

/// Returns the I/O error at the end of a chain of errors.
fn cause(error: &tonic::transport::Error) -> Option<&io::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}
