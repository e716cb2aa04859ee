//! Whole lives of pods, as a kubelet leads them: every call is repeated until it is answered, whatever dies meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use cri_proto::v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use tonic::{Code, Status, transport::Channel};

use crate::chance::Chance;

/// A bound for a broken run, not a measure.
const PATIENCE: Duration = Duration::from_secs(150);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(30);
const IMAGE: &str = "docker.io/library/demo:1";
pub(crate) const PULLED: &str = "127.0.0.1:5000/other:1";

/// What clients met, by code, and what must not be.
#[derive(Debug, Default)]
pub(crate) struct Met {
    pub(crate) lives: u64,
    pub(crate) calls: u64,
    pub(crate) codes: BTreeMap<String, u64>,
    pub(crate) lines: u64,
    pub(crate) unknown_ends: u64,
    pub(crate) faults: Vec<String>,
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) chance: Chance,
    pub(crate) logs: PathBuf,
    pub(crate) met: &'a Mutex<Met>,
}

/// Calls until it is answered; a call may be cancelled at a moment by chance.
macro_rules! insist {
    ($client:expr, $what:expr, $service:ident . $method:ident ($request:expr), $enough:expr) => {{
        let begin = Instant::now();
        loop {
            let mut service = $client.$service.clone();
            let request = $request;
            let deadline = $client.deadline();
            let answer = tokio::time::timeout(deadline, service.$method(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::cancelled("given up")));
            $client.note($what, answer.as_ref().err());
            match answer {
                Ok(answer) => break Ok(answer.into_inner()),
                Err(status) if $enough(&status) => break Err(status),
                Err(status) if begin.elapsed() > PATIENCE => {
                    $client.fault(format!("{} is stuck: {status:?}", $what));
                    break Err(status);
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }};
}

/// What no repetition changes.
fn never(_: &Status) -> bool {
    false
}

fn settled(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument)
}

impl Client<'_> {
    fn met(&self) -> std::sync::MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(&self, fault: String) {
        self.met().faults.push(fault);
    }

    fn note(&self, what: &str, error: Option<&Status>) {
        let mut met = self.met();
        met.calls += 1;
        let Some(status) = error else { return };
        *met.codes.entry(format!("{what}: {:?}", status.code())).or_default() += 1;
        // The plugin's own failures are of this code, too, and that of a first process killed before its program began.
        let known = status.message().contains("flaky")
            || (what == "StartContainer" && status.message().contains("before it could execute"));
        let ours = matches!(status.code(), Code::Internal | Code::Unknown | Code::AlreadyExists);
        if ours && !known && !is_transport(status) {
            met.faults.push(format!("{what}: {:?} {}", status.code(), status.message()));
        }
    }

    fn deadline(&mut self) -> Duration {
        match self.chance.below(10) {
            0 => Duration::from_micros(self.chance.below(4000)),
            1 => Duration::from_millis(self.chance.below(200)),
            _ => Duration::from_secs(20),
        }
    }

    /// A pod with one or two containers, from its beginning to its end.
    pub(crate) async fn life(&mut self, name: &str) {
        let config = self.pod(name);
        let run = || v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let Ok(made) = insist!(self, "RunPodSandbox", runtime.run_pod_sandbox(run()), never) else { return };
        let pod = made.pod_sandbox_id;
        for number in 0..=self.chance.below(2) {
            self.container(&config, &pod, &format!("c{number}")).await;
        }
        if self.chance.one_in(2) {
            let stop = || v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
            let _ = insist!(self, "StopPodSandbox", runtime.stop_pod_sandbox(stop()), never);
        }
        let remove = || v1::RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
        let _ = insist!(self, "RemovePodSandbox", runtime.remove_pod_sandbox(remove()), never);
        self.met().lives += 1;
    }

    async fn container(&mut self, config: &v1::PodSandboxConfig, pod: &str, name: &str) {
        let lines = 1 + self.chance.below(400);
        let forever = self.chance.one_in(3);
        let create = || v1::CreateContainerRequest {
            pod_sandbox_id: pod.to_owned(),
            config: Some(container(name, lines, forever)),
            sandbox_config: Some(config.clone()),
        };
        let created = match insist!(self, "CreateContainer", runtime.create_container(create()), settled) {
            Ok(created) => created,
            Err(status) => {
                return self.fault(format!("a pod that was answered is no place for a container: {status:?}"));
            }
        };
        let id = created.container_id;
        let start = || v1::StartContainerRequest { container_id: id.clone() };
        // A start that the monitor died under may have failed: then the container ended, and says so.
        let started = insist!(self, "StartContainer", runtime.start_container(start()), settled);
        self.visit(&id).await;
        let mut killed = forever;
        if forever || self.chance.one_in(5) {
            let timeout = i64::try_from(self.chance.below(2)).unwrap_or(0);
            let stop = || v1::StopContainerRequest { container_id: id.clone(), timeout };
            let _ = insist!(self, "StopContainer", runtime.stop_container(stop()), never);
            killed = true;
        }
        let ended = self.ended(&id).await;
        let log = Path::new(&config.log_directory).join(format!("{name}.log"));
        self.check(&log, lines, killed || started.is_err(), &ended);
        if self.chance.one_in(2) {
            let remove = || v1::RemoveContainerRequest { container_id: id.clone() };
            let _ = insist!(self, "RemoveContainer", runtime.remove_container(remove()), never);
        }
    }

    /// What others ask of a container that may end at any time.
    async fn visit(&mut self, id: &str) {
        for _ in 0..self.chance.below(4) {
            let container_id = id.to_owned();
            match self.chance.below(4) {
                0 => {
                    let cmd = ["sh", "-c", "sleep 0.0$1; echo probe", "sh", &self.chance.below(9).to_string()];
                    let cmd = cmd.map(str::to_owned).to_vec();
                    let request =
                        || v1::ExecSyncRequest { container_id: container_id.clone(), cmd: cmd.clone(), timeout: 5 };
                    let gone = |status: &Status| settled(status) || status.code() == Code::DeadlineExceeded;
                    let answer = insist!(self, "ExecSync", runtime.exec_sync(request()), gone);
                    if let Ok(answer) = answer
                        && answer.exit_code == 0
                        && answer.stdout != b"probe\n"
                    {
                        self.fault(format!("a command's output: {answer:?}"));
                    }
                }
                1 => {
                    let request = || v1::ContainerStatsRequest { container_id: container_id.clone() };
                    let _ = insist!(self, "ContainerStats", runtime.container_stats(request()), settled);
                }
                2 => {
                    let request = || v1::ReopenContainerLogRequest { container_id: container_id.clone() };
                    let _ = insist!(self, "ReopenContainerLog", runtime.reopen_container_log(request()), settled);
                }
                _ => {
                    let request = || v1::ListContainersRequest::default();
                    let listed = insist!(self, "ListContainers", runtime.list_containers(request()), never);
                    if listed.is_ok_and(|list| !list.containers.iter().any(|one| one.id == container_id)) {
                        self.fault(format!("container {id} is in no list"));
                    }
                }
            }
        }
    }

    async fn ended(&mut self, id: &str) -> v1::ContainerStatus {
        let begin = Instant::now();
        loop {
            let request = || v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let answer = insist!(self, "ContainerStatus", runtime.container_status(request()), settled);
            let status = answer.ok().and_then(|answer| answer.status);
            match status {
                None => {
                    self.fault(format!("container {id} is not known any more"));
                    return v1::ContainerStatus::default();
                }
                Some(status) if status.state() == v1::ContainerState::ContainerExited => return status,
                Some(status) if begin.elapsed() > PATIENCE => {
                    self.fault(format!("container {id} does not end: {status:?}"));
                    return status;
                }
                Some(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Every line once, and all of them where it came to its end by itself.
    fn check(&self, log: &Path, lines: u64, killed: bool, ended: &v1::ContainerStatus) {
        let text = fs::read_to_string(log).unwrap_or_default();
        let mut seen = 0;
        for line in text.lines() {
            let word = line.splitn(4, ' ').nth(3).unwrap_or_default();
            if word != format!("line {}", seen + 1) {
                return self.fault(format!("{}: {line:?} after line {seen} ({ended:?})", log.display()));
            }
            seen += 1;
        }
        let mut met = self.met();
        met.lines += seen;
        if ended.reason == "Unknown" {
            met.unknown_ends += 1;
        } else if !killed && (ended.exit_code, seen) != (7, lines) {
            met.faults.push(format!("{}: {seen} of {lines} lines, {ended:?}", log.display()));
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
            pid: [v1::NamespaceMode::Container, v1::NamespaceMode::Pod][usize::from(self.chance.one_in(3))].into(),
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

    /// An image comes and goes.
    pub(crate) async fn image(&mut self) {
        let spec = || Some(v1::ImageSpec { image: PULLED.into(), ..Default::default() });
        let pull = || v1::PullImageRequest { image: spec(), ..Default::default() };
        let _ = insist!(self, "PullImage", images.pull_image(pull()), never);
        let remove = || v1::RemoveImageRequest { image: spec() };
        let _ = insist!(self, "RemoveImage", images.remove_image(remove()), never);
    }
}

/// The connection broke, or there was none.
fn is_transport(status: &Status) -> bool {
    use std::error::Error;
    status.source().is_some()
        || status.message().contains("h2 protocol error")
        || status.message().contains("transport")
}

fn container(name: &str, lines: u64, forever: bool) -> v1::ContainerConfig {
    let end = if forever { "trap 'exit 7' TERM; while :; do sleep 0.1; done" } else { "exit 7" };
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
