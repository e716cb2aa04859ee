use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use cri_proto::v1::{self, runtime_service_client::RuntimeServiceClient as Runtime};
use system_tests::Node;
use tonic::{Response, Status, transport::Channel};

use crate::IMAGE;

/// A CRI client. Every request has a timeout.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The generated client of the runtime service.
    pub(crate) runtime: Runtime<Channel>,
}

/// The configuration of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodPlan {
    /// Name, also of its log directory.
    pub(crate) name: String,
    /// Attempt, as counted by the kubelet.
    pub(crate) attempt: u32,
    /// Parent of its cgroups; empty for the default of the daemon.
    pub(crate) cgroup_parent: String,
    /// Directory of its log files.
    pub(crate) logs: PathBuf,
    /// Root directory of the node through which the log is read; empty if the log directory is visible to both the node
    /// and the test.
    pub(crate) root: PathBuf,
    /// Whether it uses the network namespace of the node.
    pub(crate) host_network: bool,
    /// Whether its containers may be privileged.
    pub(crate) privileged: bool,
    /// Whether its containers share a PID namespace.
    pub(crate) shared_pid: bool,
}

/// The configuration of a container.
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
    /// Capabilities in addition to the default ones.
    pub(crate) capabilities: Vec<String>,
    /// CPU quota in microseconds per 100 ms; 0 for no limit.
    pub(crate) cpu_quota: i64,
    /// CPU shares; 0 for the default.
    pub(crate) cpu_shares: i64,
    /// Memory limit in bytes; 0 for no limit.
    pub(crate) memory: i64,
}

/// The result of a successful ExecSync request.
#[derive(Clone, Debug)]
pub(crate) struct ExecOutput {
    /// Exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Time from the request to the response.
    pub(crate) duration: Duration,
}

impl Client {
    /// Connects to the daemon of a node.
    ///
    /// # Errors
    /// If no daemon is listening.
    pub(crate) async fn connect(node: &Node) -> Result<Self, String> {
        Self::connect_to(&format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid())).await
    }

    /// Connects to a daemon by the path of its socket.
    ///
    /// # Errors
    /// If no daemon is listening.
    pub(crate) async fn connect_to(socket: &str) -> Result<Self, String> {
        let channel = cri_proto::connect(socket).await.map_err(|error| format!("connect to {socket}: {error}"))?;
        Ok(Self { runtime: Runtime::new(channel).max_decoding_message_size(cri_proto::MESSAGE_MAX) })
    }

    /// Calls RunPodSandbox and returns the id of the pod.
    ///
    /// # Errors
    /// The error of the daemon, or a timeout.
    pub(crate) async fn run_pod(&mut self, plan: &PodPlan, within: Duration) -> Result<String, String> {
        let request = v1::RunPodSandboxRequest { config: Some(pod_config(plan)), ..Default::default() };
        Ok(response("RunPodSandbox", within, self.runtime.run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    /// Calls CreateContainer and returns the id of the container.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
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
        Ok(response("CreateContainer", within, self.runtime.create_container(request)).await?.container_id)
    }

    /// Calls StartContainer.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn start(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        response("StartContainer", within, self.runtime.start_container(request)).await.map(drop)
    }

    /// Calls RunPodSandbox, CreateContainer and StartContainer, and returns the ids of the pod and the container.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
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

    /// Calls ExecSync with a timeout in seconds for the command, and another one for the response.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
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
        let start = Instant::now();
        let output = response("ExecSync", within, self.runtime.exec_sync(request)).await?;
        Ok(ExecOutput { code: output.exit_code, stdout: output.stdout, duration: start.elapsed() })
    }

    /// Calls StopContainer with a grace period in seconds.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn stop(&mut self, id: &str, grace: i64, within: Duration) -> Result<(), String> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: grace };
        response("StopContainer", within, self.runtime.stop_container(request)).await.map(drop)
    }

    /// Calls RemoveContainer.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn remove(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        response("RemoveContainer", within, self.runtime.remove_container(request)).await.map(drop)
    }

    /// Calls StopPodSandbox and RemovePodSandbox.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn remove_pod(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        response("StopPodSandbox", within, self.runtime.stop_pod_sandbox(request)).await?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        response("RemovePodSandbox", within, self.runtime.remove_pod_sandbox(request)).await.map(drop)
    }

    /// Calls ContainerStatus.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn container(&mut self, id: &str, within: Duration) -> Result<v1::ContainerStatus, String> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let response = response("ContainerStatus", within, self.runtime.container_status(request)).await?;
        response.status.ok_or_else(|| "ContainerStatus: no status".to_owned())
    }

    /// Calls ReopenContainerLog.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn reopen_log(&mut self, id: &str, within: Duration) -> Result<(), String> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        response("ReopenContainerLog", within, self.runtime.reopen_container_log(request)).await.map(drop)
    }

    /// Calls CheckpointContainer with the path of an archive.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn checkpoint(&mut self, id: &str, archive: &str, within: Duration) -> Result<(), String> {
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: archive.to_owned(),
            ..Default::default()
        };
        response("CheckpointContainer", within, self.runtime.checkpoint_container(request)).await.map(drop)
    }

    /// Calls Status and returns each condition that is false, with its reason and message.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn unready(&mut self, within: Duration) -> Result<Vec<String>, String> {
        let response = response("Status", within, self.runtime.status(v1::StatusRequest::default())).await?;
        let conditions = response.status.map(|status| status.conditions).unwrap_or_default();
        let unready = conditions.into_iter().filter(|condition| !condition.status);
        Ok(unready
            .map(|condition| format!("{}: {} {}", condition.r#type, condition.reason, condition.message))
            .collect())
    }

    /// Lists pods and containers in any state, and returns their numbers.
    ///
    /// # Errors
    /// As for [`Client::run_pod`].
    pub(crate) async fn list(&mut self, within: Duration) -> Result<(usize, usize), String> {
        let pods = v1::ListPodSandboxRequest::default();
        let pods = response("ListPodSandbox", within, self.runtime.list_pod_sandbox(pods)).await?;
        let containers = v1::ListContainersRequest::default();
        let containers = response("ListContainers", within, self.runtime.list_containers(containers)).await?;
        Ok((pods.items.len(), containers.containers.len()))
    }
}

const NO_RESPONSE: &str = "no response from the daemon within";

/// Whether an error of a request is a timeout, rather than an error returned by the daemon.
pub(crate) fn is_timeout(error: &str) -> bool {
    error.contains(NO_RESPONSE)
}

/// Waits for the response to a call.
///
/// # Errors
/// `CALL: CODE MESSAGE`, or a timeout, for which [`is_timeout`] returns true.
pub(crate) async fn response<T>(
    call: &str,
    within: Duration,
    future: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(within, future).await {
        Err(_) => Err(format!("{call}: {NO_RESPONSE} {} s", within.as_secs_f32())),
        Ok(Err(status)) => Err(format!("{call}: {:?} {}", status.code(), status.message())),
        Ok(Ok(response)) => Ok(response.into_inner()),
    }
}

fn pod_config(plan: &PodPlan) -> v1::PodSandboxConfig {
    let mode = |shared: bool, other: v1::NamespaceMode| i32::from(if shared { v1::NamespaceMode::Pod } else { other });
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
        // The kubelet's default for a pod without a seccomp profile.
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
