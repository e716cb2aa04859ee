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
use crate::engine::{Engine, Failure};

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

/// The duration of each step for one pod.
pub(crate) type Times = [Duration; STEPS.len()];

/// A running pod.
pub(crate) struct RunningPod {
    pod: String,
    container: String,
}

impl RunningPod {
    /// Returns the id of its container.
    pub(crate) fn container(&self) -> &str {
        &self.container
    }
}

struct Clock<'a> {
    engine: &'a Engine,
    times: Times,
    step: usize,
}

impl Clock<'_> {
    async fn step<T>(&mut self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failure> {
        let start = Instant::now();
        let result = call.await;
        self.times[self.step] = start.elapsed();
        let name = STEPS[self.step];
        self.step += 1;
        result.map(Response::into_inner).map_err(|e| Failure(format!("{}: {name}: {}", self.engine.name, e.message())))
    }
}

/// Runs a pod with one container through its whole life cycle.
pub(crate) async fn run(engine: &Engine, shape: &Shape, name: &str) -> Result<Times, Failure> {
    let mut clock = Clock { engine, times: Times::default(), step: 0 };
    let pod = start(&mut clock, shape, name).await?;
    let mut runtime = engine.runtime.clone();
    let exec = ExecSyncRequest { container_id: pod.container.clone(), cmd: vec!["true".to_owned()], timeout: 10 };
    let output = clock.step(runtime.exec_sync(exec)).await?;
    if output.exit_code != 0 {
        return Err(Failure(format!("{}: ExecSync: true exited with code {}", engine.name, output.exit_code)));
    }
    remove(&mut clock, pod).await?;
    Ok(clock.times)
}

/// Starts a pod with one running container.
pub(crate) async fn start_pod(engine: &Engine, shape: &Shape, name: &str) -> Result<RunningPod, Failure> {
    start(&mut Clock { engine, times: Times::default(), step: 0 }, shape, name).await
}

/// Stops and removes a pod.
pub(crate) async fn remove_pod(engine: &Engine, pod: RunningPod) -> Result<(), Failure> {
    remove(&mut Clock { engine, times: Times::default(), step: 4 }, pod).await
}

async fn start(clock: &mut Clock<'_>, shape: &Shape, name: &str) -> Result<RunningPod, Failure> {
    let mut runtime = clock.engine.runtime.clone();
    let config = pod(shape, name);
    let run = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: clock.engine.handler().to_owned() };
    let pod = clock.step(runtime.run_pod_sandbox(run)).await?.pod_sandbox_id;
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
pub(crate) fn pod(shape: &Shape, name: &str) -> PodSandboxConfig {
    let security = LinuxSandboxSecurityContext {
        namespace_options: namespaces(shape),
        seccomp: runtime_default(),
        ..Default::default()
    };
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: format!("bench-{name}"),
            uid: format!("bench-{}-{name}", shape.mark),
            namespace: "bench".to_owned(),
            attempt: 0,
        }),
        hostname: "bench".to_owned(),
        log_directory: shape.logs().to_string_lossy().into_owned(),
        linux: Some(LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() }),
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
        let uid = format!("bench-{}-{name}", shape.mark);
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
