//! A container that writes a line at once.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use cri_proto::v1::{
    CreateContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopPodSandboxRequest,
};

use crate::{
    call::limited,
    engine::Engine,
    pods::{Shape, container_config, pod_config},
};

/// Interval at which the log is read.
const POLL: Duration = Duration::from_millis(1);
/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a container may take to write.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a pod with a container that writes a line, until the line is in the log; then removes the pod. Returns the time until then.
///
/// # Errors
/// What the engine reported, or that the log remained empty.
pub(super) async fn run(engine: &Engine, shape: &Shape, name: &str) -> Result<Duration, String> {
    let mut runtime = engine.runtime.clone();
    let config = pod_config(engine, shape, name);
    let log_directory = config.log_directory.clone();
    let start = Instant::now();
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: engine.handler().to_owned() };
    let pod = limited("RunPodSandbox", CALL_TIMEOUT, runtime.run_pod_sandbox(request)).await?.pod_sandbox_id;
    let written = async {
        let mut container = container_config(shape, name);
        container.command = vec!["echo".to_owned(), "ready".to_owned()];
        container.log_path = format!("{name}.log");
        let log = Path::new(&log_directory).join(&container.log_path);
        // That of an interrupted turn.
        let _ = fs::remove_file(&log);
        let create = CreateContainerRequest {
            pod_sandbox_id: pod.clone(),
            config: Some(container),
            sandbox_config: Some(config),
        };
        let container_id =
            limited("CreateContainer", CALL_TIMEOUT, runtime.create_container(create)).await?.container_id;
        limited("StartContainer", CALL_TIMEOUT, runtime.start_container(StartContainerRequest { container_id }))
            .await?;
        first_line(&log, start).await
    };
    let written = written.await;
    let mut runtime = engine.runtime.clone();
    let stop = StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
    limited("StopPodSandbox", CALL_TIMEOUT, runtime.stop_pod_sandbox(stop)).await?;
    limited(
        "RemovePodSandbox",
        CALL_TIMEOUT,
        runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod }),
    )
    .await?;
    written
}

/// Waits for the first line of a log. Returns the time since `start`.
async fn first_line(log: &Path, start: Instant) -> Result<Duration, String> {
    let deadline = Instant::now() + TIMEOUT;
    while !fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0) {
        if Instant::now() > deadline {
            return Err(format!("the log is empty after {} s", TIMEOUT.as_secs()));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(start.elapsed())
}
