//! A container of `true` through an engine.

use std::time::{Duration, Instant};

use cri_proto::v1::{
    ContainerState, ContainerStatusRequest, CreateContainerRequest, PodSandboxConfig, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopPodSandboxRequest,
};
use tonic::{Response, Status};

use crate::{
    engine::{Engine, Failure},
    pods::{Shape, container_config, pod_config},
};

/// Interval at which the state of the container is requested until it has exited.
const POLL: Duration = Duration::from_micros(500);
/// Time after which a container that has not exited counts as an error.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A pod in which an engine runs containers.
pub(crate) struct EnginePod {
    engine: Engine,
    shape: Shape,
    config: PodSandboxConfig,
    id: String,
    containers: u32,
}

impl EnginePod {
    /// Runs the pod.
    pub(crate) async fn run(engine: &Engine, shape: &Shape, number: usize) -> Result<Self, Failure> {
        let config = pod_config(shape, &format!("runtimes-{number}"));
        let request =
            RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: engine.handler().to_owned() };
        let pod = engine.runtime.clone().run_pod_sandbox(request).await;
        let pod = pod.map_err(|e| Failure(format!("{}: RunPodSandbox: {}", engine.name, e.message())))?;
        let id = pod.into_inner().pod_sandbox_id;
        Ok(Self { engine: engine.clone(), shape: shape.clone(), config, id, containers: 0 })
    }

    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs `true` in a new container, from CreateContainer until RemoveContainer has returned. Returns the time.
    ///
    /// # Errors
    /// What the engine reported, or the exit code.
    pub(crate) async fn run_true(&mut self, memory_limit: Option<i64>) -> Result<Duration, String> {
        self.containers += 1;
        let mut config = container_config(&self.shape, "runtimes");
        if let Some(metadata) = &mut config.metadata {
            metadata.attempt = self.containers;
        }
        if let (Some(image), Some(of_endpoint)) = (&mut config.image, self.engine.image()) {
            image.image = of_endpoint.to_owned();
        }
        config.command = vec!["true".to_owned()];
        config.log_path = "true.log".to_owned();
        if let (Some(limit), Some(linux)) = (memory_limit, &mut config.linux) {
            linux.resources.iter_mut().for_each(|resources| resources.memory_limit_in_bytes = limit);
        }
        let start = Instant::now();
        let create = CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let mut runtime = self.engine.runtime.clone();
        let created = limited("CreateContainer", runtime.create_container(create)).await?;
        let container_id = created.into_inner().container_id;
        let exited = self.start_and_wait(&container_id).await;
        let remove =
            limited("RemoveContainer", runtime.remove_container(RemoveContainerRequest { container_id })).await;
        let time = start.elapsed();
        let code = exited?;
        remove?;
        if code == 0 { Ok(time) } else { Err(format!("exit code {code}")) }
    }

    async fn start_and_wait(&self, id: &str) -> Result<i32, String> {
        let mut runtime = self.engine.runtime.clone();
        let start = StartContainerRequest { container_id: id.to_owned() };
        limited("StartContainer", runtime.start_container(start)).await?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let status = limited("ContainerStatus", runtime.container_status(request)).await?;
            let status = status.into_inner().status.unwrap_or_default();
            if status.state() == ContainerState::ContainerExited {
                return Ok(status.exit_code);
            }
            if Instant::now() > deadline {
                return Err(format!("still running after {} s", TIMEOUT.as_secs()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Stops and removes the pod.
    pub(crate) async fn remove(self) -> Result<(), Failure> {
        let mut runtime = self.engine.runtime.clone();
        let failed = |e: Status| Failure(format!("{}: remove the pod: {}", self.engine.name, e.message()));
        runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: self.id.clone() }).await.map_err(failed)?;
        let removed = runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: self.id.clone() }).await;
        removed.map(drop).map_err(failed)
    }
}

/// Makes a call for a limited time.
async fn limited<T>(
    name: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>, String> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(response) => response.map_err(|status| format!("{name}: {}", status.message())),
        Err(_) => Err(format!("{name}: no response in {} s", TIMEOUT.as_secs())),
    }
}
