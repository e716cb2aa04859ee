use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use cri_proto::v1::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ExecSyncRequest, ImageSpec, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, SecurityProfile, StartContainerRequest, StopContainerRequest,
    StopPodSandboxRequest, security_profile::ProfileType,
};
use tonic::{Response, Status};

use super::Shape;
use crate::{
    engine::{Engine, Failure},
    results::TurnLog,
};

/// The steps of the life cycle, in order.
pub(crate) const STEPS: [&str; 8] = [
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "ExecSync",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
];

/// Index of the first step of the end of a pod.
const STOP: usize = 4;
/// Timeout of a call. An engine that does not respond must not end the measurement of the others.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of attempts to remove a pod after a failure, and the time between two of them.
const REMOVAL_ATTEMPTS: usize = 3;
const REMOVAL_PERIOD: Duration = Duration::from_secs(1);

/// A running pod.
pub(crate) struct RunningPod {
    pod: String,
    container: String,
}

impl RunningPod {
    /// Returns its id.
    pub(crate) fn id(&self) -> &str {
        &self.pod
    }

    /// Returns the id of its container.
    pub(crate) fn container(&self) -> &str {
        &self.container
    }
}

/// The life of a pod or a part of it, up to its end or to the first failure.
pub(crate) struct Life {
    /// Index of its first step.
    first: usize,
    /// Durations of the successful steps, in the order of [`STEPS`].
    times: Vec<Duration>,
    failure: Option<Failure>,
    has_timed_out: bool,
}

impl Life {
    /// Returns whether the engine did not respond. Further pods would take as long each.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Returns the time of all its steps.
    pub(crate) fn time(&self) -> Duration {
        self.times.iter().sum()
    }

    /// Returns why it ended early, as a value.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Returns why it ended early.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Records the steps, and the sum of all as metric `whole`.
    pub(crate) fn record(&self, whole: &str, parameter: Option<f64>, log: &mut TurnLog) {
        for (step, time) in STEPS.iter().skip(self.first).zip(&self.times) {
            log.add_ms(step, parameter, *time);
        }
        match &self.failure {
            None => log.add_ms(whole, parameter, self.times.iter().sum()),
            Some(failure) => {
                let step = STEPS.get(self.first + self.times.len()).unwrap_or(&whole);
                log.fail(step, parameter, &failure.0);
                log.fail(whole, parameter, &failure.0);
            }
        }
    }
}

struct Clock<'a> {
    engine: &'a Engine,
    times: Vec<Duration>,
    /// Index of the first step, which is not 0 for a pod that was started before.
    first: usize,
    /// The pod, once it is known.
    pod: Option<String>,
    has_timed_out: bool,
}

impl<'a> Clock<'a> {
    fn new(engine: &'a Engine, first: usize) -> Self {
        Self { engine, times: Vec::new(), first, pod: None, has_timed_out: false }
    }

    /// Makes the call of the next step.
    async fn step<T>(&mut self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failure> {
        let name = STEPS.get(self.first + self.times.len()).unwrap_or(&"call");
        let fail = |cause: &str| Failure(format!("{}: {name}: {cause}", self.engine.name));
        let start = Instant::now();
        let result = tokio::time::timeout(CALL_TIMEOUT, call).await;
        let time = start.elapsed();
        self.has_timed_out |= result.is_err();
        let response = result.map_err(|_| fail(&format!("no response in {} s", CALL_TIMEOUT.as_secs())))?;
        let response = response.map_err(|status| fail(status.message()))?;
        self.times.push(time);
        Ok(response.into_inner())
    }
}

/// Returns the name of a pod that no other contestant has: one that is the same engine would return its pod.
fn unique(engine: &Engine, name: &str) -> String {
    format!("{}-{name}", engine.number)
}

/// Runs a pod with one container through its whole life cycle. Removes it after a failure, too.
pub(crate) async fn run(engine: &Engine, shape: &Shape, name: &str) -> Life {
    let mut clock = Clock::new(engine, 0);
    let failure = whole(&mut clock, shape, &unique(engine, name)).await.err();
    if let (Some(_), Some(pod)) = (&failure, &clock.pod) {
        force_remove(engine, pod).await;
    }
    Life { first: 0, times: clock.times, failure, has_timed_out: clock.has_timed_out }
}

/// Starts a pod with one running container, and returns it with its life so far. Removes it after a failure.
pub(crate) async fn begin(engine: &Engine, shape: &Shape, name: &str) -> (Life, Option<RunningPod>) {
    let mut clock = Clock::new(engine, 0);
    let started = start(&mut clock, shape, &unique(engine, name)).await;
    if let (Err(_), Some(pod)) = (&started, &clock.pod) {
        force_remove(engine, pod).await;
    }
    let (pod, failure) = match started {
        Ok(pod) => (Some(pod), None),
        Err(failure) => (None, Some(failure)),
    };
    (Life { first: 0, times: clock.times, failure, has_timed_out: clock.has_timed_out }, pod)
}

/// Stops and removes a pod.
pub(crate) async fn end(engine: &Engine, pod: RunningPod) -> Life {
    let mut clock = Clock::new(engine, STOP);
    let id = pod.pod.clone();
    let failure = remove(&mut clock, pod).await.err();
    if failure.is_some() {
        force_remove(engine, &id).await;
    }
    Life { first: STOP, times: clock.times, failure, has_timed_out: clock.has_timed_out }
}

async fn whole(clock: &mut Clock<'_>, shape: &Shape, name: &str) -> Result<(), Failure> {
    let pod = start(clock, shape, name).await?;
    let mut runtime = clock.engine.runtime.clone();
    let exec = ExecSyncRequest { container_id: pod.container.clone(), cmd: vec!["true".to_owned()], timeout: 10 };
    let output = clock.step(runtime.exec_sync(exec)).await?;
    if output.exit_code != 0 {
        clock.times.pop();
        return Err(Failure(format!("{}: ExecSync: true exited with code {}", clock.engine.name, output.exit_code)));
    }
    remove(clock, pod).await
}

/// Removes a pod whose life ended early, as a kubelet would: by repeated requests. Returns whether the engine responds.
pub(crate) async fn force_remove(engine: &Engine, pod: &str) -> bool {
    for attempt in 0..REMOVAL_ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(REMOVAL_PERIOD).await;
        }
        let mut runtime = engine.runtime.clone();
        let removal = async move {
            runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() }).await?;
            runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.to_owned() }).await
        };
        match tokio::time::timeout(CALL_TIMEOUT, removal).await {
            Ok(Err(_)) => {}
            Ok(Ok(_)) => return true,
            Err(_) => return false,
        }
    }
    true
}

async fn start(clock: &mut Clock<'_>, shape: &Shape, name: &str) -> Result<RunningPod, Failure> {
    let mut runtime = clock.engine.runtime.clone();
    let config = pod(clock.engine, shape, name);
    let run = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: clock.engine.handler().to_owned() };
    let pod = clock.step(runtime.run_pod_sandbox(run)).await?.pod_sandbox_id;
    clock.pod = Some(pod.clone());
    let create = CreateContainerRequest {
        pod_sandbox_id: pod.clone(),
        config: Some(container(shape, name)),
        sandbox_config: Some(config),
    };
    let container = clock.step(runtime.create_container(create)).await?.container_id;
    clock.step(runtime.start_container(StartContainerRequest { container_id: container.clone() })).await?;
    Ok(RunningPod { pod, container })
}

async fn remove(clock: &mut Clock<'_>, pod: RunningPod) -> Result<(), Failure> {
    let mut runtime = clock.engine.runtime.clone();
    // The grace period is zero, because the time that a program takes to exit is not the engine's.
    clock
        .step(runtime.stop_container(StopContainerRequest { container_id: pod.container.clone(), timeout: 0 }))
        .await?;
    clock.step(runtime.remove_container(RemoveContainerRequest { container_id: pod.container })).await?;
    clock.step(runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.pod.clone() })).await?;
    clock.step(runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.pod })).await?;
    Ok(())
}

fn namespaces(shape: &Shape) -> Option<NamespaceOption> {
    let network = if shape.host_network { NamespaceMode::Node } else { NamespaceMode::Pod };
    Some(NamespaceOption { network: network.into(), pid: NamespaceMode::Container.into(), ..Default::default() })
}

/// Returns the configuration of a pod.
pub(crate) fn pod(engine: &Engine, shape: &Shape, name: &str) -> PodSandboxConfig {
    let security = LinuxSandboxSecurityContext {
        namespace_options: namespaces(shape),
        seccomp: runtime_default(),
        ..Default::default()
    };
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: format!("bench-{name}"),
            uid: format!("{}{name}", shape.uid_prefix()),
            namespace: "bench".to_owned(),
            attempt: 0,
        }),
        hostname: "bench".to_owned(),
        log_directory: shape.logs().to_string_lossy().into_owned(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(security),
            cgroup_parent: engine.cgroup_parent.to_owned(),
            ..Default::default()
        }),
        labels: labels(shape, name, None),
        annotations: annotations(shape, None),
        ..Default::default()
    }
}

/// Returns the configuration of the container of a pod.
pub(crate) fn container(shape: &Shape, name: &str) -> ContainerConfig {
    let security = LinuxContainerSecurityContext {
        namespace_options: namespaces(shape),
        seccomp: runtime_default(),
        no_new_privs: true,
        masked_paths: ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
            .map(str::to_owned)
            .to_vec(),
        readonly_paths: ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
            .map(str::to_owned)
            .to_vec(),
        ..Default::default()
    };
    let resources = LinuxContainerResources {
        cpu_shares: 512,
        cpu_period: 100_000,
        cpu_quota: 200_000,
        memory_limit_in_bytes: 64 << 20,
        ..Default::default()
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "sleeper".to_owned(), attempt: 0 }),
        // A kubelet sets both; CRI-O refuses a container without the second.
        image: Some(ImageSpec {
            image: shape.image.clone(),
            user_specified_image: shape.image.clone(),
            ..Default::default()
        }),
        command: shape.command(),
        log_path: "sleeper.log".to_owned(),
        labels: labels(shape, name, Some("sleeper")),
        annotations: annotations(shape, Some("sleeper")),
        linux: Some(LinuxContainerConfig { resources: Some(resources), security_context: Some(security) }),
        ..Default::default()
    }
}

/// Returns the labels that a kubelet sets on pods and containers.
fn labels(shape: &Shape, name: &str, container: Option<&str>) -> HashMap<String, String> {
    let mut labels = HashMap::from([("bench".to_owned(), name.to_owned())]);
    if shape.kubelet {
        let uid = format!("{}{name}", shape.uid_prefix());
        let pod_labels = [
            ("io.kubernetes.pod.name", format!("bench-{name}")),
            ("io.kubernetes.pod.namespace", "bench".to_owned()),
            ("io.kubernetes.pod.uid", uid),
        ];
        labels.extend(pod_labels.map(|(key, value)| (key.to_owned(), value)));
        labels.extend(container.map(|name| ("io.kubernetes.container.name".to_owned(), name.to_owned())));
    }
    labels
}

/// Returns the annotations that a kubelet sets on pods and containers.
fn annotations(shape: &Shape, container: Option<&str>) -> HashMap<String, String> {
    let pod = [("kubernetes.io/config.seen", "2026-01-01T00:00:00.000000000Z"), ("kubernetes.io/config.source", "api")];
    let container_annotations = [
        ("io.kubernetes.container.hash", "9a4c1f3b"),
        ("io.kubernetes.container.restartCount", "0"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
    ];
    let selected: &[(&str, &str)] = match (shape.kubelet, container) {
        (false, _) => &[],
        (true, None) => &pod,
        (true, Some(_)) => &container_annotations,
    };
    selected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn runtime_default() -> Option<SecurityProfile> {
    Some(SecurityProfile { profile_type: ProfileType::RuntimeDefault.into(), localhost_ref: String::new() })
}
