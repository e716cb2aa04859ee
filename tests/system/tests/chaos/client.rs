//! A client that runs pods through their life cycle like the kubelet: every call is repeated until it gets a response,
//! whichever processes are killed in the meantime.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use tonic::{Code, Status, transport::Channel};

use crate::random::Random;

/// A bound for failing tests.
const TIMEOUT: Duration = Duration::from_secs(150);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(30);
const IMAGE: &str = "docker.io/library/demo:1";
pub(crate) const PULLED: &str = "127.0.0.1:5000/other:1";

/// Statistics of the clients: calls, errors by code, and faults, which must not occur.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) pods: u64,
    pub(crate) calls: u64,
    pub(crate) codes: BTreeMap<String, u64>,
    pub(crate) lines: u64,
    pub(crate) unknown_exits: u64,
    pub(crate) faults: Vec<String>,
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) random: Random,
    pub(crate) logs: PathBuf,
    pub(crate) statistics: &'a Mutex<Statistics>,
}

/// Repeats a call until it succeeds or `$is_final` accepts its error. A call may be cancelled at a random time.
macro_rules! retry {
    ($client:expr, $rpc:expr, $service:ident . $method:ident ($request:expr), $is_final:expr) => {{
        let start = Instant::now();
        loop {
            let mut service = $client.$service.clone();
            let request = $request;
            let deadline = $client.deadline();
            let result = tokio::time::timeout(deadline, service.$method(request)).await;
            let result = result.unwrap_or_else(|_| Err(Status::cancelled("cancelled by the test")));
            $client.record($rpc, result.as_ref().err());
            match result {
                Ok(response) => break Ok(response.into_inner()),
                Err(status) if $is_final(&status) => break Err(status),
                Err(status) if start.elapsed() > TIMEOUT => {
                    $client.fault(format!("{} is stuck: {status:?}", $rpc));
                    break Err(status);
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }};
}

/// Retries every error.
fn never(_: &Status) -> bool {
    false
}

/// Whether a retry cannot change the error.
fn is_permanent(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument)
}

impl Client<'_> {
    fn statistics(&self) -> std::sync::MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(&self, fault: String) {
        self.statistics().faults.push(fault);
    }

    fn record(&self, rpc: &str, error: Option<&Status>) {
        let mut statistics = self.statistics();
        statistics.calls += 1;
        let Some(status) = error else { return };
        *statistics.codes.entry(format!("{rpc}: {:?}", status.code())).or_default() += 1;
        // Errors of the plugin have such a code, too, and so has an init process that was killed before execve(2).
        let is_expected = status.message().contains("flaky")
            || (rpc == "StartContainer" && status.message().contains("before it could execute"));
        let is_fault = matches!(status.code(), Code::Internal | Code::Unknown | Code::AlreadyExists);
        if is_fault && !is_expected && !is_transport(status) {
            statistics.faults.push(format!("{rpc}: {:?} {}", status.code(), status.message()));
        }
    }

    fn deadline(&mut self) -> Duration {
        match self.random.below(10) {
            0 => Duration::from_micros(self.random.below(4000)),
            1 => Duration::from_millis(self.random.below(200)),
            _ => Duration::from_secs(20),
        }
    }

    /// Creates and removes a pod with one or two containers.
    pub(crate) async fn run_pod(&mut self, name: &str) {
        let config = self.pod(name);
        let run = || v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let Ok(created) = retry!(self, "RunPodSandbox", runtime.run_pod_sandbox(run()), never) else { return };
        let pod = created.pod_sandbox_id;
        for number in 0..=self.random.below(2) {
            self.container(&config, &pod, &format!("c{number}")).await;
        }
        if self.random.one_in(2) {
            let stop = || v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
            let _ = retry!(self, "StopPodSandbox", runtime.stop_pod_sandbox(stop()), never);
        }
        let remove = || v1::RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
        let _ = retry!(self, "RemovePodSandbox", runtime.remove_pod_sandbox(remove()), never);
        self.statistics().pods += 1;
    }

    async fn container(&mut self, config: &v1::PodSandboxConfig, pod: &str, name: &str) {
        let lines = 1 + self.random.below(400);
        let runs_forever = self.random.one_in(3);
        let create = || v1::CreateContainerRequest {
            pod_sandbox_id: pod.to_owned(),
            config: Some(container(name, lines, runs_forever)),
            sandbox_config: Some(config.clone()),
        };
        let created = match retry!(self, "CreateContainer", runtime.create_container(create()), is_permanent) {
            Ok(created) => created,
            Err(status) => {
                return self.fault(format!("create a container in a ready pod: {status:?}"));
            }
        };
        let id = created.container_id;
        let start = || v1::StartContainerRequest { container_id: id.clone() };
        // A start may fail if the monitor is killed; the status of the container reports its exit then.
        let started = retry!(self, "StartContainer", runtime.start_container(start()), is_permanent);
        self.visit(&id).await;
        let mut killed = runs_forever;
        if runs_forever || self.random.one_in(5) {
            let timeout = i64::try_from(self.random.below(2)).unwrap_or(0);
            let stop = || v1::StopContainerRequest { container_id: id.clone(), timeout };
            let _ = retry!(self, "StopContainer", runtime.stop_container(stop()), never);
            killed = true;
        }
        let status = self.wait_for_exit(&id).await;
        let log = Path::new(&config.log_directory).join(format!("{name}.log"));
        self.check_log(&log, lines, killed || started.is_err(), &status);
        if self.random.one_in(2) {
            let remove = || v1::RemoveContainerRequest { container_id: id.clone() };
            let _ = retry!(self, "RemoveContainer", runtime.remove_container(remove()), never);
        }
    }

    /// Sends other requests for a container, which may exit at any time.
    async fn visit(&mut self, id: &str) {
        for _ in 0..self.random.below(4) {
            let container_id = id.to_owned();
            match self.random.below(4) {
                0 => {
                    let cmd = ["sh", "-c", "sleep 0.0$1; echo probe", "sh", &self.random.below(9).to_string()];
                    let cmd = cmd.map(str::to_owned).to_vec();
                    let request =
                        || v1::ExecSyncRequest { container_id: container_id.clone(), cmd: cmd.clone(), timeout: 5 };
                    let gone = |status: &Status| is_permanent(status) || status.code() == Code::DeadlineExceeded;
                    let result = retry!(self, "ExecSync", runtime.exec_sync(request()), gone);
                    if let Ok(response) = result
                        && response.exit_code == 0
                        && response.stdout != b"probe\n"
                    {
                        self.fault(format!("unexpected output of a command: {response:?}"));
                    }
                }
                1 => {
                    let request = || v1::ContainerStatsRequest { container_id: container_id.clone() };
                    let _ = retry!(self, "ContainerStats", runtime.container_stats(request()), is_permanent);
                }
                2 => {
                    let request = || v1::ReopenContainerLogRequest { container_id: container_id.clone() };
                    let _ = retry!(self, "ReopenContainerLog", runtime.reopen_container_log(request()), is_permanent);
                }
                _ => {
                    let request = || v1::ListContainersRequest::default();
                    let listed = retry!(self, "ListContainers", runtime.list_containers(request()), never);
                    if listed.is_ok_and(|list| !list.containers.iter().any(|other| other.id == container_id)) {
                        self.fault(format!("container {id} is not listed"));
                    }
                }
            }
        }
    }

    async fn wait_for_exit(&mut self, id: &str) -> v1::ContainerStatus {
        let start = Instant::now();
        loop {
            let request = || v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let result = retry!(self, "ContainerStatus", runtime.container_status(request()), is_permanent);
            let status = result.ok().and_then(|response| response.status);
            match status {
                None => {
                    self.fault(format!("container {id} does not exist any longer"));
                    return v1::ContainerStatus::default();
                }
                Some(status) if status.state() == v1::ContainerState::ContainerExited => return status,
                Some(status) if start.elapsed() > TIMEOUT => {
                    self.fault(format!("container {id} does not exit: {status:?}"));
                    return status;
                }
                Some(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Checks that the log contains each line once, and all of them if the container exited by itself.
    fn check_log(&self, log: &Path, lines: u64, killed: bool, status: &v1::ContainerStatus) {
        let text = fs::read_to_string(log).unwrap_or_default();
        let mut count = 0;
        for line in text.lines() {
            let text = line.splitn(4, ' ').nth(3).unwrap_or_default();
            if text != format!("line {}", count + 1) {
                return self.fault(format!("{}: {line:?} after line {count} ({status:?})", log.display()));
            }
            count += 1;
        }
        let mut statistics = self.statistics();
        statistics.lines += count;
        if status.reason == "Unknown" {
            statistics.unknown_exits += 1;
        } else if !killed && (status.exit_code, count) != (7, lines) {
            statistics.faults.push(format!("{}: {count} of {lines} lines, {status:?}", log.display()));
        }
    }

    fn pod(&mut self, name: &str) -> v1::PodSandboxConfig {
        let metadata = v1::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "chaos".into(),
            attempt: 0,
        };
        let options = v1::NamespaceOption {
            pid: [v1::NamespaceMode::Container, v1::NamespaceMode::Pod][usize::from(self.random.one_in(3))].into(),
            ..Default::default()
        };
        let context = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let linux = v1::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
        v1::PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.logs.join(name).to_string_lossy().into_owned(),
            linux: Some(linux),
            ..Default::default()
        }
    }

    /// Pulls and removes an image.
    pub(crate) async fn pull_and_remove(&mut self) {
        let spec = || Some(v1::ImageSpec { image: PULLED.into(), ..Default::default() });
        let pull = || v1::PullImageRequest { image: spec(), ..Default::default() };
        let _ = retry!(self, "PullImage", images.pull_image(pull()), never);
        let remove = || v1::RemoveImageRequest { image: spec() };
        let _ = retry!(self, "RemoveImage", images.remove_image(remove()), never);
    }
}

/// Whether the error is a broken connection, or a failure to connect.
fn is_transport(status: &Status) -> bool {
    use std::error::Error;
    status.source().is_some()
        || status.message().contains("h2 protocol error")
        || status.message().contains("transport")
}

fn container(name: &str, lines: u64, runs_forever: bool) -> v1::ContainerConfig {
    let end = if runs_forever { "trap 'exit 7' TERM; while :; do sleep 0.1; done" } else { "exit 7" };
    let script = format!("i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; done; {end}");
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: vec!["sh".into(), "-c".into(), script],
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    }
}
