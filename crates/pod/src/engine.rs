//! The public interface: each method delegates to the module that implements it.

mod info;
mod inner;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    Config, ContainerConfig, ContainerStatus, Error, ExecOutput, ExecRequest, PodUsers, SandboxConfig, SandboxStatus,
    Session, container, health, recover, sandbox,
};

pub use info::{EngineInfo, Feature, MonitorInfo};
pub(crate) use inner::{ContainerName, Inner, blocking, detached, name_of};

/// Whether a component works, and the reason if it does not.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Whether it works.
    pub ready: bool,
    /// Reason in CamelCase; empty if ready.
    pub reason: String,
    /// Error message; empty if ready.
    pub message: String,
}

impl Condition {
    pub(crate) fn from_result<E: std::fmt::Display>(outcome: Result<(), E>, reason: &str) -> Self {
        match outcome {
            Ok(()) => Self { ready: true, reason: String::new(), message: String::new() },
            Err(error) => Self { ready: false, reason: reason.to_owned(), message: error.to_string() },
        }
    }
}

/// Status of the engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Whether containers can be created.
    pub runtime: Condition,
    /// Whether pods can be attached to the network.
    pub network: Condition,
    /// Whether pods can have user namespaces.
    pub user_namespaces: Condition,
    /// Runtime handlers; the empty name is the default handler.
    pub handlers: Vec<String>,
    /// Further details for `pinion info`.
    pub info: EngineInfo,
}

/// The engine. Cheap to clone. Dropping the last clone leaves containers running.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

impl Engine {
    /// Opens the engine: restores running pods and containers, connects to the monitor or starts one, and reconciles
    /// the records with the kernel. Requires a runtime with I/O and time. Makes the process a subreaper and raises its
    /// soft limit of open files.
    ///
    /// # Errors
    /// If a directory, the image store, the network or the monitor cannot be opened. A single broken record is not an
    /// error.
    pub async fn open(config: Config) -> Result<Self, Error> {
        recover::open(config).await.map(Self)
    }

    /// Returns the status of the engine. Waits at most one second for components that do not respond
    /// ([`crate::Silence`]); the first call after the start may wait some seconds.
    pub async fn status(&self) -> EngineStatus {
        let engine = &self.0;
        let ((network, description), monitor) =
            tokio::join!(engine.health.network(), engine.monitor.welcome_within(health::RECONNECT_TIMEOUT));
        let user_namespaces = engine.user_namespaces_for_status().await;
        let reason = user_namespaces.as_ref().err().cloned();
        let info = EngineInfo {
            network: description,
            state_dir: engine.config.state_dir.clone(),
            data_dir: engine.config.data_dir.clone(),
            health: engine.health.info(),
            monitor: monitor.as_ref().ok().map(|monitor| MonitorInfo {
                pid: monitor.pid,
                version: monitor.version.clone(),
                contract: (monitor.major, monitor.minor),
            }),
            user_namespaces: Feature { supported: reason.is_none(), reason },
            apparmor: container::apparmor::describe(),
        };
        EngineStatus {
            runtime: match monitor {
                Ok(_) => engine.health.monitor.condition(),
                Err(error) => Condition::from_result(Err(error), "MonitorUnavailable"),
            },
            network,
            user_namespaces: Condition::from_result(user_namespaces, "NotSupported"),
            handlers: engine.handlers(),
            info,
        }
    }

    /// Checks whether the data disk accepts writes, for callers that are about to rely on it. Waits at most 5 s.
    pub async fn data_disk(&self) -> Condition {
        self.0.health.data_disk().await
    }

    /// Returns the number of threads of this process that are blocked in a call on a pipe that a process of a container
    /// holds inside the kernel. The call ends only when that process or its container is killed; until then an
    /// execve(2) of this process does not return, and its exit does not complete.
    pub fn blocked_pipe_calls(&self) -> usize {
        crate::session::blocked_pipe_calls()
    }

    /// Returns the processes of containers that keep a pipe of this process locked inside the kernel. This may have no
    /// effect yet, because a pipe without data is not read. The pipe is unlocked when the process or its container is
    /// killed; until then an execve(2) of this process does not return. Inspects every process of the machine.
    pub fn pipe_holders(&self) -> Vec<crate::PipeHolder> {
        crate::pipe_holders::holders_of_own_pipes(&self.0.config.state_dir)
    }

    /// Returns how long components that may hang have not responded.
    pub fn silence(&self) -> crate::Silence {
        self.0.health.silence()
    }

    /// Returns the image store.
    pub fn images(&self) -> &image::Store {
        &self.0.images
    }

    /// Creates a sandbox and returns its id. If a sandbox of the same name is being created, waits for it; if one is
    /// ready, returns its id.
    ///
    /// # Errors
    /// `InvalidArgument`, or the error of the step that failed. Everything is rolled back then.
    pub async fn run_sandbox(&self, config: SandboxConfig) -> Result<String, Error> {
        sandbox::run::run(&self.0, config).await
    }

    /// Stops the containers of a sandbox and detaches it from the network; its record stays. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        sandbox::stop::stop(&self.0, id).await
    }

    /// Stops a pod that is not in use, and reports whether it is stopped (an unknown pod is). If a container is being
    /// created in the pod, waits for it; that container counts as a user of the pod.
    ///
    /// # Errors
    /// Those of [`Engine::stop_sandbox`].
    pub async fn stop_unused_sandbox(&self, id: &str, users: PodUsers) -> Result<bool, Error> {
        sandbox::stop::stop_unused(&self.0, id, users).await
    }

    /// Stops a sandbox and removes it together with its containers. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        sandbox::remove::remove(&self.0, id).await
    }

    /// Returns the status of a sandbox, given its id or an unambiguous prefix of it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn sandbox(&self, id: &str) -> Result<SandboxStatus, Error> {
        Ok(self.0.sandbox(id)?.status())
    }

    /// Returns the status of all sandboxes, the oldest first.
    pub fn sandboxes(&self) -> Vec<SandboxStatus> {
        let mut all: Vec<_> = self.0.sandboxes().iter().map(|sandbox| sandbox.status()).collect();
        all.sort_by_key(|sandbox| sandbox.created_at);
        all
    }

    /// Creates a container, which then waits to be started, and returns its id. A repeated request returns the same id.
    ///
    /// # Errors
    /// `NotFound` for the sandbox or the image, `InvalidArgument`, `AlreadyExists` if a container of that name and
    /// attempt runs with a different configuration, or the error of the step that failed. Everything is rolled back
    /// then.
    pub async fn create_container(&self, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
        container::create::create(&self.0, sandbox, config).await
    }

    /// Starts the program of a container.
    ///
    /// # Errors
    /// `InvalidArgument` if the command cannot be executed: the container has then exited with the reason `StartError`.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        container::start::start(&self.0, id).await
    }

    /// Sends the stop signal to a container, waits for at most `grace`, then kills all its processes. Unknown ids
    /// succeed.
    ///
    /// # Errors
    /// `DeadlineExceeded` if killed processes do not end.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let (engine, id) = self.to_owned_arguments(id);
        detached(async move { container::stop::stop(&engine, &id, grace).await }).await
    }

    /// Sends a signal (1 to 64) to the first process of a container, or to every process.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn kill_container(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        container::kill::kill(&self.0, id, signal, all).await
    }

    /// Removes a container; a running one is killed first. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        container::remove::remove(&self.0, id).await
    }

    /// Returns the status of a container, given its id or an unambiguous prefix of it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn container(&self, id: &str) -> Result<ContainerStatus, Error> {
        Ok(self.0.container(id)?.status())
    }

    /// Returns the status of all containers, the oldest first.
    pub fn containers(&self) -> Vec<ContainerStatus> {
        let mut all: Vec<_> = self.0.containers().iter().map(|container| container.status()).collect();
        all.sort_by_key(|container| container.created_at);
        all
    }

    /// Continues the log of a container in a new file of the same name (after a rotation).
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        container::reopen_log::reopen_log(&self.0, id).await
    }

    /// Changes the resource limits of a container; absent fields stay as they are.
    ///
    /// # Errors
    /// `InvalidArgument`; `FailedPrecondition` if the container has exited, or uses more memory than the new limit.
    /// Nothing is changed then.
    pub async fn update_container(
        &self,
        id: &str,
        resources: oci::Resources,
        oom_score_adj: Option<i32>,
    ) -> Result<(), Error> {
        container::update::update(&self.0, id, resources, oom_score_adj).await
    }

    /// Executes a command in a container and waits for it to exit. A `timeout` of zero means no timeout. At most
    /// [`Config::exec_sync_output_max`] bytes of each stream are returned. At the timeout all processes of the command
    /// are killed and the call fails with `DeadlineExceeded`. If the caller drops the future, the command is killed.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running, `InvalidArgument` if the command cannot be executed.
    pub async fn exec_sync(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<ExecOutput, Error> {
        container::exec_sync::exec_sync(&self.0, id, command, timeout).await
    }

    /// Executes a command in a container and returns its streams.
    ///
    /// # Errors
    /// Those of [`Engine::exec_sync`].
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        container::exec::exec(&self.0, id, request).await
    }

    /// Attaches to the streams of the container's first process.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn attach(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        container::attach::attach(&self.0, id, request).await
    }

    /// Waits until the container has exited and returns its exit code; `None` if that cannot be determined.
    ///
    /// # Errors
    /// `NotFound`, also if the container is removed before it was started.
    pub async fn wait(&self, id: &str) -> Result<Option<i32>, Error> {
        container::exit::wait(&self.0, id).await
    }

    /// Returns all that is known of a sandbox, for the verbose CRI status.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn inspect_sandbox(&self, id: &str) -> Result<Value, Error> {
        let sandbox = self.0.sandbox(id)?;
        let record = sandbox.record();
        Ok(json!({
            "id": sandbox.id(),
            "stage": record.stage,
            "phase": record.phase,
            "netns": record.netns,
            "cniResult": record.attachment.as_ref().map(|attachment| &attachment.raw),
            "attachment": record.attachment,
            "cgroup": self.0.cgroup_of(&sandbox),
            "resources": record.resources.as_ref().or(sandbox.config().resources.as_ref()),
            "overhead": record.overhead.as_ref().or(sandbox.config().overhead.as_ref()),
        }))
    }

    /// Returns all that is known of a container, for the verbose CRI status.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn inspect_container(&self, id: &str) -> Result<Value, Error> {
        let container = self.0.container(id)?;
        let record = container.record();
        Ok(json!({
            "id": container.id(),
            "stage": record.stage,
            "phase": record.phase,
            "runtimeSpec": container.spec(&self.0.records).ok(),
            "cgroup": container.metadata.cgroup,
            "stopSignal": container.metadata.stop_signal,
            "imageId": container.metadata.image_id,
            "snapshot": self.0.images.upper(container.id()),
            "startTime": record.start_time,
        }))
    }

    fn to_owned_arguments(&self, id: &str) -> (Arc<Inner>, String) {
        (Arc::clone(&self.0), id.to_owned())
    }
}
