//! The part of CRI-O's HTTP interface that cAdvisor uses: `GET /info` and `GET /containers/ID`.
//!
//! The kubelet has cAdvisor built in, which recognizes containers of containerd and CRI-O only. By default the kubelet
//! takes from it what `/metrics/cadvisor` reports, and the network and the number of processes in `/stats/summary`
//! (feature gate `PodAndContainerStatsFromCRI`, KEP-2371). cAdvisor reads the cgroups itself; of an engine it requests
//! what they do not contain: the names of pod, container and image, and a process in the pod's network namespace. It
//! requests them once for each cgroup, and the process again whenever that has exited.
//!
//! Nothing can be changed through the socket, and only root can connect to it.

mod server;

use std::{
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use pod::{ContainerId, Engine, ErrorKind, Name, SandboxId, SharedMode};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::socket;
use crate::Failure;

/// Value of the label of the container's name for the pod itself, as in CRI-O.
const POD: &str = "POD";

/// The server, until it is stopped.
pub(super) struct Server {
    path: PathBuf,
    /// New connections are queued while it is open.
    _listener: UnixListener,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Listens on this path. Must be called within the runtime.
    ///
    /// # Errors
    /// Another process listens there: a CRI-O.
    pub(super) async fn start(path: &Path, engine: Engine) -> Result<Self, Failure> {
        if is_in_use(path).await {
            return Err(Failure::daemon(format!(
                "cadvisor.socket: another process listens on {}, perhaps CRI-O; stop it, or remove the key",
                path.display()
            )));
        }
        let listener = offload::in_place(|| socket::listen(path))?;
        let task = tokio::spawn(server::accept(socket::acceptor(&listener)?, engine));
        tracing::info!(socket = %path.display(), "cAdvisor is served");
        Ok(Self { path: path.to_owned(), _listener: listener, task })
    }

    /// Removes the socket.
    pub(super) fn stop(self) {
        socket::remove(&self.path);
    }
}

/// Reports whether a process listens on a path. Does not wait for one whose queue is full.
async fn is_in_use(path: &Path) -> bool {
    match tokio::net::UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused),
    }
}

/// The response to `GET /info`.
#[derive(Serialize)]
struct Info {
    /// A name that cAdvisor does not know, so that it does not look for the files of containers: their size is part of
    /// the CRI's statistics.
    storage_driver: &'static str,
    /// With `systemd`, cAdvisor ignores cgroups that are not units.
    cgroup_driver: &'static str,
}

const INFO: Info = Info { storage_driver: "pinion", cgroup_driver: "cgroupfs" };

/// The response to `GET /containers/ID`, for a container or a pod.
#[derive(Serialize)]
struct Container {
    name: String,
    /// 0 if there is none: cAdvisor requests it again.
    pid: u32,
    image: String,
    labels: Labels,
}

#[derive(Serialize)]
struct Labels {
    #[serde(rename = "io.kubernetes.container.name")]
    container: String,
    #[serde(rename = "io.kubernetes.pod.name")]
    name: String,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: String,
    #[serde(rename = "io.kubernetes.pod.uid")]
    uid: String,
}

impl Labels {
    fn of(container: &str, pod: &Name) -> Self {
        let Name { name, uid, namespace, .. } = pod.clone();
        Self { container: container.to_owned(), name, namespace, uid }
    }
}

/// Returns what cAdvisor has to know of the container or pod with this id; `None` if there is none.
fn find(engine: &Engine, id: &str) -> Option<Container> {
    let found = ContainerId::parse(id).and_then(|id| container(engine, &id));
    match found {
        Err(error) if error.kind == ErrorKind::NotFound => pod(engine, &SandboxId::parse(id).ok()?).ok(),
        found => found.ok(),
    }
}

fn container(engine: &Engine, id: &ContainerId) -> Result<Container, pod::Error> {
    let status = engine.container(id)?;
    let sandbox = engine.sandbox(&status.sandbox)?;
    // The reference that the user specified, because kubelet requests images by id.
    let named = &status.config.user_specified_image;
    let image = if named.is_empty() { &status.config.image } else { named };
    Ok(Container {
        name: id.to_string(),
        pid: status.pid.unwrap_or(0),
        image: image.to_string(),
        labels: Labels::of(&status.config.name, &sandbox.config.name),
    })
}

fn pod(engine: &Engine, id: &SandboxId) -> Result<Container, pod::Error> {
    let sandbox = engine.sandbox(id)?;
    // The counters of the node do not belong to a pod.
    let has_network = sandbox.config.network == SharedMode::Pod;
    let pid = has_network.then(|| engine.pid_in_sandbox(id)).flatten();
    Ok(Container {
        name: id.to_string(),
        pid: pid.unwrap_or(0),
        image: String::new(),
        labels: Labels::of(POD, &sandbox.config.name),
    })
}
