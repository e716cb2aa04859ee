//! Scripted lives, step by step. Every call is repeated until it is answered, as a kubelet would.

use std::{
    fs,
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use tonic::{Code, Response, Status, transport::Channel};

use crate::{
    point::Life,
    stage::{IMAGE, PATIENCE, PULLED, Stage},
};

type Runtime = RuntimeServiceClient<Channel>;
type Images = ImageServiceClient<Channel>;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// Of one try.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long the last lines of a container that ended may take to its log.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// Lines that the container prints before it waits.
const LINES: u64 = 40;
const SCRIPT: &str =
    "trap 'echo end; exit 7' TERM; i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; sleep 1000 & wait";

/// What is tolerated at a point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    /// A start may fail, and the container's end may be of any code: the process that made it was killed or failed.
    pub(crate) broken_start: bool,
    /// Requests may fail before they are repeated.
    pub(crate) errors: bool,
}

/// A life that is being led.
pub(crate) struct Led {
    life: Life,
    name: String,
    tolerance: Tolerance,
    pod: Option<String>,
    container: Option<String>,
    started: bool,
}

impl Life {
    /// How many steps there are.
    pub(crate) fn steps(self) -> usize {
        match self {
            Life::Pod => 9,
            Life::Image => 3,
            Life::Restart | Life::ColdStart => 1,
        }
    }
}

impl Led {
    pub(crate) fn new(life: Life, name: String, tolerance: Tolerance) -> Self {
        Self { life, name, tolerance, pod: None, container: None, started: false }
    }

    /// One step. Records what went wrong with the stage.
    pub(crate) async fn step(&mut self, stage: &mut Stage, step: usize) {
        match (self.life, step) {
            (Life::Image, 0) => self.pull(stage).await,
            (Life::Image, 1) => self.look_at_image(stage).await,
            (Life::Image, _) => self.remove_image(stage).await,
            (_, 0) => self.run_pod(stage).await,
            (_, 1) => self.create(stage).await,
            (_, 2) => self.start(stage).await,
            (_, 3) => self.exec(stage).await,
            (_, 4) => self.observe(stage).await,
            (_, 5) => self.stop(stage).await,
            (_, 6) => self.remove(stage).await,
            (_, 7) => self.stop_pod(stage).await,
            (_, _) => self.remove_pod(stage).await,
        }
    }

    fn log_directory(&self, stage: &Stage) -> PathBuf {
        stage.node.logs().join(&self.name)
    }

    fn config(&self, stage: &Stage) -> v1::PodSandboxConfig {
        let metadata = v1::PodSandboxMetadata {
            name: self.name.clone(),
            uid: format!("uid-{}", self.name),
            namespace: "campaign".into(),
            attempt: 0,
        };
        v1::PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.log_directory(stage).to_string_lossy().into_owned(),
            linux: Some(v1::LinuxPodSandboxConfig::default()),
            ..Default::default()
        }
    }

    async fn run_pod(&mut self, stage: &mut Stage) {
        let request = v1::RunPodSandboxRequest { config: Some(self.config(stage)), runtime_handler: String::new() };
        let made = self.runtime(stage, "RunPodSandbox", &[], |mut runtime| {
            let request = request.clone();
            async move { runtime.run_pod_sandbox(request).await }
        });
        self.pod = made.await.ok().map(|made| made.pod_sandbox_id);
    }

    async fn create(&mut self, stage: &mut Stage) {
        let Some(pod) = self.pod.clone() else { return };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: ["sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
            log_path: "main.log".into(),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod,
            config: Some(config),
            sandbox_config: Some(self.config(stage)),
        };
        let made = self.runtime(stage, "CreateContainer", &[], |mut runtime| {
            let request = request.clone();
            async move { runtime.create_container(request).await }
        });
        self.container = made.await.ok().map(|made| made.container_id);
    }

    async fn start(&mut self, stage: &mut Stage) {
        let Some(container_id) = self.container.clone() else { return };
        let settled: &[Code] = if self.tolerance.broken_start { &[Code::FailedPrecondition] } else { &[] };
        let started = self.runtime(stage, "StartContainer", settled, |mut runtime| {
            let request = v1::StartContainerRequest { container_id: container_id.clone() };
            async move { runtime.start_container(request).await }
        });
        self.started = started.await.is_ok();
    }

    async fn exec(&mut self, stage: &mut Stage) {
        let Some(container_id) = self.container.clone().filter(|_| self.started) else { return };
        let request = v1::ExecSyncRequest {
            container_id,
            cmd: ["sh", "-c", "echo out; echo err >&2; exit 3"].map(str::to_owned).to_vec(),
            timeout: 10,
        };
        // A first process that was killed just before its program began is a container that started and ended.
        let settled: &[Code] = if self.tolerance.broken_start { &[Code::FailedPrecondition] } else { &[] };
        let answer = self.runtime(stage, "ExecSync", settled, |mut runtime| {
            let request = request.clone();
            async move { runtime.exec_sync(request).await }
        });
        match answer.await {
            Err(status) if settled.contains(&status.code()) => self.started = false,
            Ok(answer) if (&answer.stdout[..], &answer.stderr[..], answer.exit_code) == (b"out\n", b"err\n", 3) => {}
            // The process was killed with its monitor, or by the fault: that is not the command's own end.
            Ok(answer) if self.tolerance.broken_start && answer.exit_code >= 125 => {}
            answer => stage.fault(format!("ExecSync: {answer:?}")),
        }
    }

    async fn observe(&mut self, stage: &mut Stage) {
        let Some(container_id) = self.container.clone().filter(|_| self.started) else { return };
        let reopened = self.runtime(stage, "ReopenContainerLog", &[], |mut runtime| {
            let request = v1::ReopenContainerLogRequest { container_id: container_id.clone() };
            async move { runtime.reopen_container_log(request).await }
        });
        let _ = reopened.await;
        let stats = self.runtime(stage, "ListContainerStats", &[], |mut runtime| async move {
            runtime.list_container_stats(v1::ListContainerStatsRequest::default()).await
        });
        // What cannot be measured is left out.
        let missing = stats.await.is_ok_and(|stats| !stats.stats.iter().any(|one| has_id(one, &container_id)));
        if missing && !self.tolerance.errors {
            stage.fault("ListContainerStats: the container is missing");
        }
        let listed = self.runtime(stage, "ListContainers", &[], |mut runtime| async move {
            runtime.list_containers(v1::ListContainersRequest::default()).await
        });
        if listed.await.is_ok_and(|list| !list.containers.iter().any(|one| one.id == container_id)) {
            stage.fault("ListContainers: the container is missing");
        }
        let log = self.log_directory(stage).join("main.log");
        let begin = Instant::now();
        while lines(&log) < LINES {
            if begin.elapsed() > PATIENCE {
                return stage.fault(format!("the log has {} of {LINES} lines", lines(&log)));
            }
            tokio::time::sleep(PAUSE / 4).await;
        }
    }

    async fn stop(&mut self, stage: &mut Stage) {
        let Some(container_id) = self.container.clone() else { return };
        let stopped = self.runtime(stage, "StopContainer", &[], |mut runtime| {
            let request = v1::StopContainerRequest { container_id: container_id.clone(), timeout: 10 };
            async move { runtime.stop_container(request).await }
        });
        let _ = stopped.await;
        let status = self.runtime(stage, "ContainerStatus", &[], |mut runtime| {
            let request = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
            async move { runtime.container_status(request).await }
        });
        let Ok(Some(status)) = status.await.map(|answer| answer.status) else {
            return stage.fault("ContainerStatus: the container is not known");
        };
        if status.state() != v1::ContainerState::ContainerExited {
            stage.fault(format!("a stopped container: {status:?}"));
        } else if self.started && status.exit_code != 7 {
            stage.fault(format!("exit code: {status:?}"));
        }
        if self.started {
            self.check_log(stage, &status).await;
        }
    }

    /// Each line once, in order. A monitor that took over may still move the last of them.
    async fn check_log(&self, stage: &mut Stage, status: &v1::ContainerStatus) {
        let log = self.log_directory(stage).join("main.log");
        let expected: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).chain(["end".into()]).collect();
        let begin = Instant::now();
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let found: Vec<&str> = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
            if found == expected {
                return;
            }
            if begin.elapsed() > LOG_PATIENCE {
                return stage.fault(format!("the log: {found:?} ({status:?})"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn remove(&mut self, stage: &mut Stage) {
        let Some(container_id) = self.container.clone() else { return };
        let removed = self.runtime(stage, "RemoveContainer", &[], |mut runtime| {
            let request = v1::RemoveContainerRequest { container_id: container_id.clone() };
            async move { runtime.remove_container(request).await }
        });
        let _ = removed.await;
    }

    async fn stop_pod(&mut self, stage: &mut Stage) {
        let Some(pod_sandbox_id) = self.pod.clone() else { return };
        let stopped = self.runtime(stage, "StopPodSandbox", &[], |mut runtime| {
            let request = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            async move { runtime.stop_pod_sandbox(request).await }
        });
        let _ = stopped.await;
    }

    async fn remove_pod(&mut self, stage: &mut Stage) {
        let Some(pod_sandbox_id) = self.pod.clone() else { return };
        let removed = self.runtime(stage, "RemovePodSandbox", &[], |mut runtime| {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            async move { runtime.remove_pod_sandbox(request).await }
        });
        let _ = removed.await;
        let _ = fs::remove_dir_all(self.log_directory(stage));
    }

    async fn pull(&mut self, stage: &mut Stage) {
        let pulled = self.images(stage, "PullImage", |mut images| async move {
            images.pull_image(v1::PullImageRequest { image: pulled(), ..Default::default() }).await
        });
        let _ = pulled.await;
    }

    /// An image that was answered is listed, and its files are what was pulled.
    async fn look_at_image(&mut self, stage: &mut Stage) {
        let status = self.images(stage, "ImageStatus", |mut images| async move {
            images.image_status(v1::ImageStatusRequest { image: pulled(), verbose: false }).await
        });
        if status.await.is_ok_and(|status| status.image.is_none()) {
            stage.fault("ImageStatus: an image that was pulled is missing");
        }
        stage.check_layers();
        let usage = self.images(stage, "ImageFsInfo", |mut images| async move {
            images.image_fs_info(v1::ImageFsInfoRequest::default()).await
        });
        let _ = usage.await;
    }

    async fn remove_image(&mut self, stage: &mut Stage) {
        let removed = self.images(stage, "RemoveImage", |mut images| async move {
            images.remove_image(v1::RemoveImageRequest { image: pulled() }).await
        });
        let _ = removed.await;
    }

    async fn runtime<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        stage: &mut Stage,
        name: &str,
        settled: &[Code],
        call: impl Fn(Runtime) -> F,
    ) -> Result<T, Status> {
        let runtime = stage.runtime.clone();
        self.insist(stage, name, settled, || call(runtime.clone())).await
    }

    async fn images<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        stage: &mut Stage,
        name: &str,
        call: impl Fn(Images) -> F,
    ) -> Result<T, Status> {
        let images = stage.images.clone();
        self.insist(stage, name, &[], || call(images.clone())).await
    }

    /// Repeats a call until it succeeds or fails with a code that no repetition changes.
    async fn insist<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        stage: &mut Stage,
        name: &str,
        settled: &[Code],
        call: impl Fn() -> F,
    ) -> Result<T, Status> {
        let begin = Instant::now();
        loop {
            let answer = tokio::time::timeout(DEADLINE, call()).await;
            let status = match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            if std::env::var_os("CAMPAIGN_VERBOSE").is_some() {
                let (code, message) = (status.code(), status.message());
                println!("  {} {name} after {} ms: {code:?} {message}", self.name, begin.elapsed().as_millis());
            }
            stage.detach_if_injected();
            if settled.contains(&status.code()) {
                return Err(status);
            }
            let expected = self.tolerance.errors || is_transport(&status) || status.code() == Code::Unavailable;
            if !(expected || self.tolerance.broken_start && name == "StartContainer") {
                stage.fault(format!("{name}: {:?} {}", status.code(), status.message()));
            }
            if begin.elapsed() > PATIENCE {
                stage.fault(format!("{name} is stuck: {status:?}"));
                return Err(status);
            }
            if !stage.revive() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn pulled() -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: PULLED.into(), ..Default::default() })
}

fn has_id(stats: &v1::ContainerStats, id: &str) -> bool {
    stats.attributes.as_ref().is_some_and(|attributes| attributes.id == id)
}

fn lines(log: &std::path::Path) -> u64 {
    fs::read_to_string(log).unwrap_or_default().lines().count() as u64
}

/// The connection broke, or there was none.
fn is_transport(status: &Status) -> bool {
    use std::error::Error;
    status.source().is_some() || ["h2 protocol error", "transport"].iter().any(|text| status.message().contains(text))
}
