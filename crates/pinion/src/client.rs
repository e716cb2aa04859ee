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
    failure::CANNOT,
};

/// A connection to the daemon, and how its answers are to be printed. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Pods and containers.
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    /// Images.
    pub(crate) images: ImageServiceClient<Channel>,
    /// What the CRI has not.
    pub(crate) native: PinionClient<Channel>,
    /// Print JSON.
    pub(crate) json: bool,
}

impl Client {
    /// Connects; where nobody listens, says how to change that.
    pub(crate) async fn connect(socket: Option<PathBuf>, json: bool) -> Result<Self, Failure> {
        let socket = socket.unwrap_or_else(configured);
        let channel = cri_proto::connect(&socket).await.map_err(|error| unreachable(&socket, &error))?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX),
            images: ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX),
            native: PinionClient::new(channel).max_decoding_message_size(MESSAGE_MAX),
            json,
        })
    }
}

/// The socket of the daemon that this machine is configured for; a broken file is the daemon's to complain of.
fn configured() -> PathBuf {
    Config::load(None).map_or_else(|_| PathBuf::from(DEFAULT_SOCKET), |config| config.socket)
}

fn unreachable(socket: &Path, error: &tonic::transport::Error) -> Failure {
    let socket = socket.display();
    let message = match cause(error).map(io::Error::kind) {
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            format!("no daemon answers on {socket}; start one with: pinion serve")
        }
        Some(io::ErrorKind::PermissionDenied) => format!("{socket} is for root only; try: sudo pinion …"),
        _ => format!("no daemon answers on {socket}: {error}"),
    };
    Failure::new(message).with_code(CANNOT)
}

/// The operating system's error at the bottom of a chain.
fn cause(error: &tonic::transport::Error) -> Option<&io::Error> {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        at = error.source();
    }
    None
}
