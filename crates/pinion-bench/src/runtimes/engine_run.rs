//! A container of `true` through an engine.

use std::time::{Duration, Instant};

use crate::{
    call::limited,
    engine::Engine,
    pods::{Shape, container_config, pod_config},
};
use cri_proto::v1::{
    ContainerState, ContainerStatusRequest, CreateContainerRequest, PodSandboxConfig, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopPodSandboxRequest,
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
    /// Id of the running pod.
    id: Option<String>,
    containers: u32,
    is_silent: bool,
}

impl EnginePod {
    /// Describes the pod.
    pub(crate) fn new(engine: &Engine, shape: &Shape) -> Self {
        let config = pod_config(engine, shape, &format!("runtimes-{}", engine.number));
        Self { engine: engine.clone(), shape: shape.clone(), config, id: None, containers: 0, is_silent: false }
    }

    /// Runs the pod, unless it is running.
    pub(crate) async fn run(&mut self) -> Result<(), String> {
        self.is_silent = false;
        if self.id.is_none() {
            let (config, runtime_handler) = (Some(self.config.clone()), self.engine.handler().to_owned());
            let mut runtime = self.engine.runtime.clone();
            let run = runtime.run_pod_sandbox(RunPodSandboxRequest { config, runtime_handler });
            self.id = Some(limited("RunPodSandbox", TIMEOUT, run).await?.pod_sandbox_id);
        }
        Ok(())
    }

    /// Returns whether a container of this turn took too long. Each further one would take as long.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
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
        let pod = self.id.clone().ok_or("its pod does not run")?;
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
            pod_sandbox_id: pod,
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let mut runtime = self.engine.runtime.clone();
        let created = limited("CreateContainer", TIMEOUT, runtime.create_container(create)).await?;
        let container_id = created.container_id;
        let exited = self.start_and_wait(&container_id).await;
        let remove =
            limited("RemoveContainer", TIMEOUT, runtime.remove_container(RemoveContainerRequest { container_id }))
                .await;
        let time = start.elapsed();
        self.is_silent |= time > TIMEOUT;
        let code = exited?;
        remove?;
        if code == 0 { Ok(time) } else { Err(format!("exit code {code}")) }
    }

    async fn start_and_wait(&self, id: &str) -> Result<i32, String> {
        let mut runtime = self.engine.runtime.clone();
        let start = StartContainerRequest { container_id: id.to_owned() };
        limited("StartContainer", TIMEOUT, runtime.start_container(start)).await?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let status = limited("ContainerStatus", TIMEOUT, runtime.container_status(request)).await?;
            let status = status.status.unwrap_or_default();
            if status.state() == ContainerState::ContainerExited {
                return Ok(status.exit_code);
            }
            if Instant::now() > deadline {
                return Err(format!("still running after {} s", TIMEOUT.as_secs()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Stops and removes the pod, if it is running.
    pub(crate) async fn remove(self) -> Result<(), String> {
        let Some(pod_sandbox_id) = self.id else { return Ok(()) };
        let mut runtime = self.engine.runtime.clone();
        let failed = |cause: String| format!("{}: remove the pod: {cause}", self.engine.name);
        let stop = StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        limited("StopPodSandbox", TIMEOUT, runtime.stop_pod_sandbox(stop)).await.map_err(failed)?;
        let remove = runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id });
        limited("RemovePodSandbox", TIMEOUT, remove).await.map(drop).map_err(failed)
    }
}
