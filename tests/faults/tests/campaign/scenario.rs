//! The scenarios, step by step. Every call is repeated until it succeeds, as by the kubelet.

use std::{
    fs,
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use tonic::{Code, Response, Status, transport::Channel};

use crate::{
    fixture::{Fixture, IMAGE, PULLED, TIMEOUT},
    point::Scenario,
};

type Runtime = RuntimeServiceClient<Channel>;
type Images = ImageServiceClient<Channel>;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Timeout of one attempt.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long the last lines of a container that exited may take until they are in its log.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of lines that the container prints before it waits.
const LINES: u64 = 40;
const SCRIPT: &str =
    "trap 'echo end; exit 7' TERM; i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; sleep 1000 & wait";

/// Failures that are tolerated at a point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    /// A start may fail, and a container may have any exit code, because the process that creates it was killed or
    /// failed.
    pub(crate) broken_start: bool,
    /// Requests may fail before they are repeated.
    pub(crate) errors: bool,
}

/// A scenario in progress.
pub(crate) struct ScenarioRun {
    scenario: Scenario,
    name: String,
    tolerance: Tolerance,
    pod: Option<String>,
    container: Option<String>,
    started: bool,
}

impl Scenario {
    /// Returns the number of steps.
    pub(crate) fn steps(self) -> usize {
        match self {
            Scenario::Pod => 9,
            Scenario::Image => 3,
            Scenario::Restart | Scenario::ColdStart => 1,
        }
    }
}

impl ScenarioRun {
    pub(crate) fn new(scenario: Scenario, name: String, tolerance: Tolerance) -> Self {
        Self { scenario, name, tolerance, pod: None, container: None, started: false }
    }

    /// Runs one step. Records faults in the fixture.
    pub(crate) async fn step(&mut self, fixture: &mut Fixture, step: usize) {
        match (self.scenario, step) {
            (Scenario::Image, 0) => self.pull(fixture).await,
            (Scenario::Image, 1) => self.check_image(fixture).await,
            (Scenario::Image, _) => self.remove_image(fixture).await,
            (_, 0) => self.run_pod(fixture).await,
            (_, 1) => self.create(fixture).await,
            (_, 2) => self.start(fixture).await,
            (_, 3) => self.exec(fixture).await,
            (_, 4) => self.observe(fixture).await,
            (_, 5) => self.stop(fixture).await,
            (_, 6) => self.remove(fixture).await,
            (_, 7) => self.stop_pod(fixture).await,
            (_, _) => self.remove_pod(fixture).await,
        }
    }

    fn log_directory(&self, fixture: &Fixture) -> PathBuf {
        fixture.node.logs().join(&self.name)
    }

    fn config(&self, fixture: &Fixture) -> v1::PodSandboxConfig {
        let metadata = v1::PodSandboxMetadata {
            name: self.name.clone(),
            uid: format!("uid-{}", self.name),
            namespace: "campaign".into(),
            attempt: 0,
        };
        v1::PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.log_directory(fixture).to_string_lossy().into_owned(),
            linux: Some(v1::LinuxPodSandboxConfig::default()),
            ..Default::default()
        }
    }

    async fn run_pod(&mut self, fixture: &mut Fixture) {
        let request = v1::RunPodSandboxRequest { config: Some(self.config(fixture)), runtime_handler: String::new() };
        let created = self.runtime(fixture, "RunPodSandbox", &[], |mut runtime| {
            let request = request.clone();
            async move { runtime.run_pod_sandbox(request).await }
        });
        self.pod = created.await.ok().map(|response| response.pod_sandbox_id);
    }

    async fn create(&mut self, fixture: &mut Fixture) {
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
            sandbox_config: Some(self.config(fixture)),
        };
        let created = self.runtime(fixture, "CreateContainer", &[], |mut runtime| {
            let request = request.clone();
            async move { runtime.create_container(request).await }
        });
        self.container = created.await.ok().map(|response| response.container_id);
    }

    async fn start(&mut self, fixture: &mut Fixture) {
        let Some(container_id) = self.container.clone() else { return };
        let permanent: &[Code] = if self.tolerance.broken_start { &[Code::FailedPrecondition] } else { &[] };
        let started = self.runtime(fixture, "StartContainer", permanent, |mut runtime| {
            let request = v1::StartContainerRequest { container_id: container_id.clone() };
            async move { runtime.start_container(request).await }
        });
        self.started = started.await.is_ok();
    }

    async fn exec(&mut self, fixture: &mut Fixture) {
        let Some(container_id) = self.container.clone().filter(|_| self.started) else { return };
        let request = v1::ExecSyncRequest {
            container_id,
            cmd: ["sh", "-c", "echo out; echo err >&2; exit 3"].map(str::to_owned).to_vec(),
            timeout: 10,
        };
        // If the init process was killed just before execve(2), the container counts as started and exited.
        let permanent: &[Code] = if self.tolerance.broken_start { &[Code::FailedPrecondition] } else { &[] };
        let exec = self.runtime(fixture, "ExecSync", permanent, |mut runtime| {
            let request = request.clone();
            async move { runtime.exec_sync(request).await }
        });
        match exec.await {
            Err(status) if permanent.contains(&status.code()) => self.started = false,
            Ok(output) if (&output.stdout[..], &output.stderr[..], output.exit_code) == (b"out\n", b"err\n", 3) => {}
            // The process was killed together with its monitor, or by the fault.
            Ok(output) if self.tolerance.broken_start && output.exit_code >= 125 => {}
            result => fixture.fault(format!("ExecSync: {result:?}")),
        }
    }

    async fn observe(&mut self, fixture: &mut Fixture) {
        let Some(container_id) = self.container.clone().filter(|_| self.started) else { return };
        let reopened = self.runtime(fixture, "ReopenContainerLog", &[], |mut runtime| {
            let request = v1::ReopenContainerLogRequest { container_id: container_id.clone() };
            async move { runtime.reopen_container_log(request).await }
        });
        let _ = reopened.await;
        let stats = self.runtime(fixture, "ListContainerStats", &[], |mut runtime| async move {
            runtime.list_container_stats(v1::ListContainerStatsRequest::default()).await
        });
        // Containers that cannot be measured are omitted.
        let is_missing = stats.await.is_ok_and(|list| !list.stats.iter().any(|stats| has_id(stats, &container_id)));
        if is_missing && !self.tolerance.errors {
            fixture.fault("ListContainerStats: the container is missing");
        }
        let listed = self.runtime(fixture, "ListContainers", &[], |mut runtime| async move {
            runtime.list_containers(v1::ListContainersRequest::default()).await
        });
        if listed.await.is_ok_and(|list| !list.containers.iter().any(|container| container.id == container_id)) {
            fixture.fault("ListContainers: the container is missing");
        }
        let log = self.log_directory(fixture).join("main.log");
        let start = Instant::now();
        while lines(&log) < LINES {
            if start.elapsed() > TIMEOUT {
                return fixture.fault(format!("the log has {} of {LINES} lines", lines(&log)));
            }
            tokio::time::sleep(PAUSE / 4).await;
        }
    }

    async fn stop(&mut self, fixture: &mut Fixture) {
        let Some(container_id) = self.container.clone() else { return };
        let stopped = self.runtime(fixture, "StopContainer", &[], |mut runtime| {
            let request = v1::StopContainerRequest { container_id: container_id.clone(), timeout: 10 };
            async move { runtime.stop_container(request).await }
        });
        let _ = stopped.await;
        let status = self.runtime(fixture, "ContainerStatus", &[], |mut runtime| {
            let request = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
            async move { runtime.container_status(request).await }
        });
        let Ok(Some(status)) = status.await.map(|response| response.status) else {
            return fixture.fault("ContainerStatus: unknown container");
        };
        if status.state() != v1::ContainerState::ContainerExited {
            fixture.fault(format!("wrong state of a stopped container: {status:?}"));
        } else if self.started && status.exit_code != 7 {
            fixture.fault(format!("wrong exit code: {status:?}"));
        }
        if self.started {
            self.check_log(fixture, &status).await;
        }
    }

    /// Checks that the log contains each line once and in order. A new monitor may still be writing the last lines.
    async fn check_log(&self, fixture: &mut Fixture, status: &v1::ContainerStatus) {
        let log = self.log_directory(fixture).join("main.log");
        let expected: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).chain(["end".into()]).collect();
        let start = Instant::now();
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
            if lines == expected {
                return;
            }
            if start.elapsed() > LOG_TIMEOUT {
                return fixture.fault(format!("wrong log: {lines:?} ({status:?})"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn remove(&mut self, fixture: &mut Fixture) {
        let Some(container_id) = self.container.clone() else { return };
        let removed = self.runtime(fixture, "RemoveContainer", &[], |mut runtime| {
            let request = v1::RemoveContainerRequest { container_id: container_id.clone() };
            async move { runtime.remove_container(request).await }
        });
        let _ = removed.await;
    }

    async fn stop_pod(&mut self, fixture: &mut Fixture) {
        let Some(pod_sandbox_id) = self.pod.clone() else { return };
        let stopped = self.runtime(fixture, "StopPodSandbox", &[], |mut runtime| {
            let request = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            async move { runtime.stop_pod_sandbox(request).await }
        });
        let _ = stopped.await;
    }

    async fn remove_pod(&mut self, fixture: &mut Fixture) {
        let Some(pod_sandbox_id) = self.pod.clone() else { return };
        let removed = self.runtime(fixture, "RemovePodSandbox", &[], |mut runtime| {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            async move { runtime.remove_pod_sandbox(request).await }
        });
        let _ = removed.await;
        let _ = fs::remove_dir_all(self.log_directory(fixture));
    }

    async fn pull(&mut self, fixture: &mut Fixture) {
        let pulled = self.images(fixture, "PullImage", |mut images| async move {
            images.pull_image(v1::PullImageRequest { image: pulled(), ..Default::default() }).await
        });
        let _ = pulled.await;
    }

    /// Checks that a pulled image is listed, and that its layers have the pulled content.
    async fn check_image(&mut self, fixture: &mut Fixture) {
        let status = self.images(fixture, "ImageStatus", |mut images| async move {
            images.image_status(v1::ImageStatusRequest { image: pulled(), verbose: false }).await
        });
        if status.await.is_ok_and(|status| status.image.is_none()) {
            fixture.fault("ImageStatus: the pulled image is missing");
        }
        fixture.check_layers();
        let usage = self.images(fixture, "ImageFsInfo", |mut images| async move {
            images.image_fs_info(v1::ImageFsInfoRequest::default()).await
        });
        let _ = usage.await;
    }

    async fn remove_image(&mut self, fixture: &mut Fixture) {
        let removed = self.images(fixture, "RemoveImage", |mut images| async move {
            images.remove_image(v1::RemoveImageRequest { image: pulled() }).await
        });
        let _ = removed.await;
    }

    async fn runtime<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        fixture: &mut Fixture,
        name: &str,
        permanent: &[Code],
        call: impl Fn(Runtime) -> F,
    ) -> Result<T, Status> {
        let runtime = fixture.runtime.clone();
        self.retry(fixture, name, permanent, || call(runtime.clone())).await
    }

    async fn images<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        fixture: &mut Fixture,
        name: &str,
        call: impl Fn(Images) -> F,
    ) -> Result<T, Status> {
        let images = fixture.images.clone();
        self.retry(fixture, name, &[], || call(images.clone())).await
    }

    /// Repeats a call until it succeeds or fails with one of the permanent codes.
    async fn retry<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        fixture: &mut Fixture,
        name: &str,
        permanent: &[Code],
        call: impl Fn() -> F,
    ) -> Result<T, Status> {
        let start = Instant::now();
        loop {
            let result = tokio::time::timeout(DEADLINE, call()).await;
            let status = match result.unwrap_or_else(|_| Err(Status::deadline_exceeded("no response"))) {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            if std::env::var_os("CAMPAIGN_VERBOSE").is_some() {
                let (code, message) = (status.code(), status.message());
                println!("  {} {name} after {} ms: {code:?} {message}", self.name, start.elapsed().as_millis());
            }
            fixture.detach_if_injected();
            if permanent.contains(&status.code()) {
                return Err(status);
            }
            let is_expected = self.tolerance.errors || is_transport(&status) || status.code() == Code::Unavailable;
            if !(is_expected || self.tolerance.broken_start && name == "StartContainer") {
                fixture.fault(format!("{name}: {:?} {}", status.code(), status.message()));
            }
            if start.elapsed() > TIMEOUT {
                fixture.fault(format!("{name} is stuck: {status:?}"));
                return Err(status);
            }
            if !fixture.restart_daemon_if_exited() {
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

/// Whether the error is a broken connection, or a failure to connect.
fn is_transport(status: &Status) -> bool {
    use std::error::Error;
    status.source().is_some() || ["h2 protocol error", "transport"].iter().any(|text| status.message().contains(text))
}
