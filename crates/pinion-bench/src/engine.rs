use std::{fmt, os::unix::net::UnixStream, str::FromStr, time::Duration};

use cri_proto::v1::{
    CgroupDriver, ImageSpec, ImageStatusRequest, PullImageRequest, RuntimeConfigRequest, VersionRequest,
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};
use rustix::net::sockopt::socket_peercred;
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::note::note;

/// An engine to measure, parsed from `NAME=SOCKET`, `NAME=SOCKET#HANDLER` or `NAME=SOCKET#HANDLER@IMAGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Name in the tables.
    pub(crate) name: String,
    /// Path of its CRI socket.
    pub(crate) socket: String,
    /// Runtime handler of the pods; empty for the default handler of the engine.
    pub(crate) handler: String,
    /// Image of its containers, in place of that of the others.
    pub(crate) image: Option<String>,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, socket) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=SOCKET"))?;
        let socket = socket.strip_prefix("unix://").unwrap_or(socket);
        let (socket, handler) = socket.split_once('#').unwrap_or((socket, ""));
        let (handler, image) = handler.split_once('@').unwrap_or((handler, ""));
        let image = Some(image).filter(|image| !image.is_empty()).map(str::to_owned);
        if name.is_empty() || !socket.starts_with('/') {
            return Err(format!(
                "{text:?} is not NAME=SOCKET, or that with #HANDLER or #HANDLER@IMAGE, with an absolute path"
            ));
        }
        Ok(Self { name: name.to_owned(), socket: socket.to_owned(), handler: handler.to_owned(), image })
    }
}

/// Timeout of a connection and of a short request, and that of a pull.
const TIMEOUT: Duration = Duration::from_secs(30);
const PULL_TIMEOUT: Duration = Duration::from_secs(600);

/// A connected engine.
#[derive(Clone)]
pub(crate) struct Engine {
    /// Name in the tables.
    pub(crate) name: String,
    /// Name and version that it reports.
    pub(crate) version: String,
    /// Its number among the engines of a run: two of them may be one engine under different names.
    pub(crate) number: usize,
    /// Parent of the cgroups of its pods; empty if it does not report its cgroup driver. A kubelet sets one, and containerd needs one for the
    /// statistics of pods.
    pub(crate) cgroup_parent: &'static str,
    /// The connection.
    pub(crate) channel: Channel,
    endpoint: Endpoint,
    /// The CRI's runtime service.
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Engine {
    /// Connects and requests the version.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self, Failure> {
        let context = |operation: &str| format!("{operation} {} on {}", endpoint.name, endpoint.socket);
        let silent =
            |operation: &str| Failure(format!("{}: no response in {} s", context(operation), TIMEOUT.as_secs()));
        let connected = timeout(TIMEOUT, cri_proto::connect(&endpoint.socket)).await;
        let channel = connected
            .map_err(|_| silent("connect to"))?
            .map_err(|e| Failure(format!("{}: {}", context("connect to"), chain(&e))))?;
        let mut runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(cri_proto::MESSAGE_MAX);
        let version = timeout(TIMEOUT, runtime.version(VersionRequest::default()))
            .await
            .map_err(|_| silent("get the version of"))?
            .map_err(|e| Failure(format!("{}: {}", context("get the version of"), e.message())))?;
        let version = version.into_inner();
        Ok(Self {
            name: endpoint.name.clone(),
            version: format!("{} {}", version.runtime_name, version.runtime_version),
            number: 0,
            cgroup_parent: cgroup_parent(&mut runtime).await,
            runtime,
            images: ImageServiceClient::new(channel.clone()),
            channel,
            endpoint: endpoint.clone(),
        })
    }

    /// Connects to several engines, and has each pull the image, and that of its endpoint. Engines that fail are left out, except for the first one.
    pub(crate) async fn connect_all(endpoints: &[Endpoint], image: &str) -> Result<Vec<Self>, Failure> {
        let mut engines = Vec::new();
        for (number, endpoint) in endpoints.iter().enumerate() {
            match Self::connect_with(endpoint, image).await {
                Ok(engine) => engines.push(Self { number, ..engine }),
                // Ratios are those of the first one.
                Err(failure) if !engines.is_empty() => note(&format!("pinion-bench: left out: {failure}")),
                Err(failure) => return Err(failure),
            }
        }
        Ok(engines)
    }

    async fn connect_with(endpoint: &Endpoint, image: &str) -> Result<Self, Failure> {
        let mut engine = Self::connect(endpoint).await?;
        for image in std::iter::once(image).chain(endpoint.image.as_deref()) {
            engine.ensure_image(image).await?;
        }
        Ok(engine)
    }

    /// Returns the path of its socket.
    pub(crate) fn socket(&self) -> &str {
        &self.endpoint.socket
    }

    /// Returns the runtime handler of its pods; empty for its default handler.
    pub(crate) fn handler(&self) -> &str {
        &self.endpoint.handler
    }

    /// Returns the image of its containers, if they have another one than those of other engines.
    pub(crate) fn image(&self) -> Option<&str> {
        self.endpoint.image.as_deref()
    }

    /// Returns the pid of the process that listens on its socket now, which may have been restarted.
    pub(crate) fn daemon_now(&self) -> Result<i32, Failure> {
        let socket = &self.endpoint.socket;
        listener(socket).map_err(|error| Failure(format!("{}: find the daemon on {socket}: {error}", self.name)))
    }

    /// Opens another connection.
    pub(crate) async fn new_channel(&self) -> Result<Channel, Failure> {
        let socket = &self.endpoint.socket;
        let channel = cri_proto::connect(socket).await;
        channel.map_err(|e| Failure(format!("connect to {} on {socket}: {}", self.name, chain(&e))))
    }

    /// Returns a client of its image service.
    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }

    /// Pulls the image unless it is present.
    pub(crate) async fn ensure_image(&mut self, image: &str) -> Result<(), Failure> {
        let spec = ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        let status = timeout(TIMEOUT, self.images.image_status(request)).await;
        if status.is_ok_and(|status| status.is_ok_and(|status| status.into_inner().image.is_some())) {
            return Ok(());
        }
        let request = PullImageRequest { image: Some(spec), ..Default::default() };
        let pull = timeout(PULL_TIMEOUT, self.images.pull_image(request)).await;
        let silent = |_| Failure(format!("{}: pull {image}: no response in {} s", self.name, PULL_TIMEOUT.as_secs()));
        pull.map_err(silent)?.map(drop).map_err(|e| Failure(format!("{}: pull {image}: {}", self.name, e.message())))
    }
}

async fn cgroup_parent(runtime: &mut RuntimeServiceClient<Channel>) -> &'static str {
    let config = timeout(TIMEOUT, runtime.runtime_config(RuntimeConfigRequest {})).await;
    let linux = config.ok().and_then(Result::ok).and_then(|config| config.into_inner().linux);
    match linux.map(|linux| linux.cgroup_driver()) {
        Some(CgroupDriver::Systemd) => "pinion-bench.slice",
        Some(CgroupDriver::Cgroupfs) => "/pinion-bench",
        None => "",
    }
}

/// Returns the pid of the process that listens on a socket.
fn listener(socket: &str) -> std::io::Result<i32> {
    let stream = UnixStream::connect(socket)?;
    Ok(socket_peercred(&stream)?.pid.as_raw_nonzero().get())
}

/// Formats an error with all of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The reason why a measurement could not be made.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_socket_and_may_have_a_handler() {
        let endpoint = |socket: &str, handler: &str| Endpoint {
            name: "a".to_owned(),
            socket: socket.to_owned(),
            handler: handler.to_owned(),
            image: None,
        };
        assert_eq!("a=/run/a.sock".parse(), Ok(endpoint("/run/a.sock", "")));
        assert_eq!("a=unix:///run/a.sock#crun".parse(), Ok(endpoint("/run/a.sock", "crun")));
        let with_image = Endpoint { image: Some("web:1".to_owned()), ..endpoint("/run/a.sock", "wasm") };
        assert_eq!("a=/run/a.sock#wasm@web:1".parse(), Ok(with_image));
        for wrong in ["a", "=/run/a.sock", "a=run/a.sock"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
