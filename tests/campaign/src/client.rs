use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, runtime_service_client::RuntimeServiceClient as Runtime};
use system_tests::Node;
use tonic::{Response, Status, transport::Channel};

use crate::IMAGE;

/// A CRI client with a connection of its own, every request with a deadline.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Generated client of the runtime service.
    pub(crate) runtime: Runtime<Channel>,
}

/// A pod to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodPlan {
    /// Name, also of its log directory.
    pub(crate) name: String,
    /// Attempt, as kubelet counts them.
    pub(crate) attempt: u32,
    /// Parent of its cgroups; empty for the daemon's default.
    pub(crate) cgroup_parent: String,
    /// Directory of its log files.
    pub(crate) logs: PathBuf,
    /// The node's root directory where its mounts are to be seen; empty where the log is on a directory that both
    /// share.
    pub(crate) root: PathBuf,
    /// Whether it uses the node's network namespace.
    pub(crate) host_network: bool,
    /// Whether its containers may be privileged.
    pub(crate) privileged: bool,
    /// Whether its containers share a PID namespace.
    pub(crate) shared_pid: bool,
}

/// A container to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerPlan {
    /// Name; its log is `NAME.log`.
    pub(crate) name: String,
    /// Command and arguments.
    pub(crate) command: Vec<String>,
    /// Host path and container path of each bind mount.
    pub(crate) mounts: Vec<(PathBuf, String)>,
    /// Whether it is privileged.
    pub(crate) privileged: bool,
    /// Capabilities beyond the default ones.
    pub(crate) capabilities: Vec<String>,
    /// CPU quota in microseconds per 100 ms; 0 for none.
    pub(crate) cpu_quota: i64,
    /// CPU shares; 0 for the default.
    pub(crate) cpu_shares: i64,
    /// Memory limit in bytes; 0 for none.
    pub(crate) memory: i64,
}

/// Outcome of an ExecSync that was answered without an error.
#[derive(Clone, Debug)]
pub(crate) struct ExecOutput {
    /// Exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Time from the request to the answer.
    pub(crate) took: Duration,
}

impl Client {
    /// Connects to the node's daemon.
    ///
    /// # Errors
    /// If there is no daemon.
    pub(crate) async fn connect(node: &Node) -> Result<Self, String> {
        Self::connect_to(&format!("/proc/{}/root/run/pinion/pinion.sock", node.first())).await
    }

    /// Connects to a daemon by its socket.
    ///
    /// # Errors
    /// If there is no daemon.
    pub(crate) async fn connect_to(socket: &str) -> Result<Self, String> {
        let channel = cri_proto::connect(socket).await.map_err(|error| format!("connect {socket}: {error}"))?;
        Ok(Self { runtime: Runtime::new(channel).max_decoding_message_size(cri_proto::MESSAGE_MAX) })
    }

    /// RunPodSandbox: the pod's id.
    ///
    /// # Errors
    /// What the daemon answered, or that it did not within the bound.
    pub(crate) async fn run_pod(&mut self, plan: &PodPlan, within: Duration) -> Result<String, String> {
        let request = v1::RunPodSandboxRequest { config: Some(pod_config(plan)), ..Default::default() };
        let answer = answered("RunPodSandbox", within, self.runtime.run_pod_sandbox(request)).await?;
        Ok(answer.pod_sandbox_id)
    }

    /// CreateContainer: the container's id.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn create(
        &mut self,
        pod_id: &str,
        pod: &PodPlan,
        plan: &ContainerPlan,
        within: Duration,
    ) -> Result<String, String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod_id.to_owned(),
            config: Some(container_config(plan)),
            sandbox_config: Some(pod_config(pod)),
        };
        Ok(answered("CreateContainer", within, self.runtime.create_container(request)).await?.container_id)
    }

    /// StartContainer.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn start(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        answered("StartContainer", within, self.runtime.start_container(request)).await.map(drop)
    }

    /// RunPodSandbox, CreateContainer and StartContainer: the ids of pod and container.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn run(
        &mut self,
        pod: &PodPlan,
        container: &ContainerPlan,
        within: Duration,
    ) -> Result<(String, String), String> {
        let pod_id = self.run_pod(pod, within).await?;
        let id = self.create(&pod_id, pod, container, within).await?;
        self.start(&id, within).await?;
        Ok((pod_id, id))
    }

    /// ExecSync with a timeout in whole seconds for the command, and a bound for the answer.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn exec(
        &mut self,
        id: &str,
        command: &[&str],
        timeout: u64,
        within: Duration,
    ) -> Result<ExecOutput, String> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: i64::try_from(timeout).unwrap_or(i64::MAX),
        };
        let begin = Instant::now();
        let answer = answered("ExecSync", within, self.runtime.exec_sync(request)).await?;
        Ok(ExecOutput { code: answer.exit_code, stdout: answer.stdout, took: begin.elapsed() })
    }

    /// StopContainer with a grace in seconds.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn stop(&mut self, id: &str, grace: i64, within: Duration) -> Result<(), String> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: grace };
        answered("StopContainer", within, self.runtime.stop_container(request)).await.map(drop)
    }

    /// RemoveContainer.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn remove(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        answered("RemoveContainer", within, self.runtime.remove_container(request)).await.map(drop)
    }

    /// StopPodSandbox and RemovePodSandbox.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn remove_pod(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        answered("StopPodSandbox", within, self.runtime.stop_pod_sandbox(request)).await?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        answered("RemovePodSandbox", within, self.runtime.remove_pod_sandbox(request)).await.map(drop)
    }

    /// ContainerStatus.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn container(&mut self, id: &str, within: Duration) -> Result<v1::ContainerStatus, String> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = answered("ContainerStatus", within, self.runtime.container_status(request)).await?;
        answer.status.ok_or_else(|| "ContainerStatus: no status".to_owned())
    }

    /// ReopenContainerLog.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn reopen_log(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        answered("ReopenContainerLog", within, self.runtime.reopen_container_log(request)).await.map(drop)
    }

    /// CheckpointContainer into an archive.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn checkpoint(&mut self, id: &str, archive: &str, within: Duration) -> Result<(), String> {
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: archive.to_owned(),
            ..Default::default()
        };
        answered("CheckpointContainer", within, self.runtime.checkpoint_container(request)).await.map(drop)
    }

    /// Status: each condition that does not hold, with its reason and message.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn unready(&mut self, within: Duration) -> Result<Vec<String>, String> {
        let answer = answered("Status", within, self.runtime.status(v1::StatusRequest::default())).await?;
        let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
        let unready = conditions.into_iter().filter(|condition| !condition.status);
        Ok(unready.map(|one| format!("{}: {} {}", one.r#type, one.reason, one.message)).collect())
    }

    /// How many pods and containers are listed, in any state.
    ///
    /// # Errors
    /// As of [`Client::run_pod`].
    pub(crate) async fn listed(&mut self, within: Duration) -> Result<(usize, usize), String> {
        let pods = v1::ListPodSandboxRequest::default();
        let pods = answered("ListPodSandbox", within, self.runtime.list_pod_sandbox(pods)).await?;
        let containers = v1::ListContainersRequest::default();
        let containers = answered("ListContainers", within, self.runtime.list_containers(containers)).await?;
        Ok((pods.items.len(), containers.containers.len()))
    }
}

const UNANSWERED: &str = "no answer from the daemon within";

/// Whether an error of a request says that the daemon did not answer, rather than what it answered.
pub(crate) fn is_unanswered(error: &str) -> bool {
    error.contains(UNANSWERED)
}

/// The answer of a call, or what came instead of it.
///
/// # Errors
/// `CALL: CODE MESSAGE`, or one that [`is_unanswered`] recognizes.
pub(crate) async fn answered<T>(
    call: &str,
    within: Duration,
    future: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(within, future).await {
        Err(_) => Err(format!("{call}: {UNANSWERED} {} s", within.as_secs_f32())),
        Ok(Err(status)) => Err(format!("{call}: {:?} {}", status.code(), status.message())),
        Ok(Ok(answer)) => Ok(answer.into_inner()),
    }
}

fn pod_config(plan: &PodPlan) -> v1::PodSandboxConfig {
    let mode =
        |shared: bool, otherwise: v1::NamespaceMode| i32::from(if shared { v1::NamespaceMode::Pod } else { otherwise });
    let options = v1::NamespaceOption {
        network: i32::from(if plan.host_network { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod }),
        pid: mode(plan.shared_pid, v1::NamespaceMode::Container),
        ..Default::default()
    };
    let security = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(options),
        privileged: plan.privileged,
        ..Default::default()
    };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: plan.name.clone(),
            uid: format!("uid-{}", plan.name),
            namespace: "campaign".into(),
            attempt: plan.attempt,
        }),
        hostname: "campaign".into(),
        log_directory: plan.logs.to_string_lossy().into_owned(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: plan.cgroup_parent.clone(),
            security_context: Some(security),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container_config(plan: &ContainerPlan) -> v1::ContainerConfig {
    let mounts = plan.mounts.iter().map(|(host, container)| v1::Mount {
        host_path: host.to_string_lossy().into_owned(),
        container_path: container.clone(),
        ..Default::default()
    });
    let security = v1::LinuxContainerSecurityContext {
        privileged: plan.privileged,
        capabilities: Some(v1::Capability { add_capabilities: plan.capabilities.clone(), ..Default::default() }),
        // What kubelet asks for where the pod says nothing of seccomp.
        seccomp: Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::Unconfined.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let resources = v1::LinuxContainerResources {
        cpu_period: if plan.cpu_quota > 0 { 100_000 } else { 0 },
        cpu_quota: plan.cpu_quota,
        cpu_shares: plan.cpu_shares,
        memory_limit_in_bytes: plan.memory,
        ..Default::default()
    };
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: plan.name.clone(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: plan.command.clone(),
        log_path: format!("{}.log", plan.name),
        mounts: mounts.collect(),
        linux: Some(v1::LinuxContainerConfig { resources: Some(resources), security_context: Some(security) }),
        ..Default::default()
    }
}
