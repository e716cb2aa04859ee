//! Operations on containers.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::Engine;
use crate::{
    AttachedClient, ContainerConfig, ContainerId, ContainerStatus, ContainerSummary, Error, ExecOutput, ExecRequest,
    SandboxId, Selects, Session, container, exec,
    operation::to_completion,
    parts::Parts,
    sandbox::{self, after_exit},
};

impl Engine {
    /// Creates a container, which then waits to be started, and returns its id. A repeated request returns the same id.
    ///
    /// # Errors
    /// `NotFound` for the sandbox or the image, `InvalidArgument`, `AlreadyExists` if a container of that name and
    /// attempt runs with a different configuration, or the error of the step that failed. Everything is rolled back
    /// then.
    pub async fn create_container(
        &self,
        sandbox: &(impl Selects<SandboxId> + ?Sized),
        config: ContainerConfig,
    ) -> Result<ContainerId, Error> {
        sandbox::sandbox_container::ensure(&self.0, sandbox.as_ref()).await?;
        container::create::create(&self.0, sandbox.as_ref(), config).await
    }

    /// Starts the program of a container.
    ///
    /// # Errors
    /// `InvalidArgument` if the command cannot be executed: the container has then exited with the reason `StartError`.
    pub async fn start_container(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<(), Error> {
        let (parts, id) = (Arc::clone(&self.0), id.as_ref().to_owned());
        to_completion(async move {
            let started = container::start::start(&parts, &id).await;
            announce_if_stopped(&parts, &id).await;
            // A container that failed to start has exited, so the cleanup applies to it, too.
            after_exit::container_started(&parts, &id);
            started
        })
        .await
    }

    /// Sends the stop signal to a container, waits for at most `grace`, then kills all its processes. Unknown ids
    /// succeed.
    ///
    /// # Errors
    /// `DeadlineExceeded` if killed processes do not end.
    pub async fn stop_container(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        grace: Duration,
    ) -> Result<(), Error> {
        let (parts, id) = (Arc::clone(&self.0), id.as_ref().to_owned());
        to_completion(async move {
            let stopped = container::stop::stop(&parts, &id, grace).await;
            announce_if_stopped(&parts, &id).await;
            stopped
        })
        .await
    }

    /// Sends a signal (1 to 64) to the first process of a container, or to every process.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn kill_container(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        signal: i32,
        all: bool,
    ) -> Result<(), Error> {
        container::kill::kill(&self.0, id.as_ref(), signal, all).await
    }

    /// Removes a container; a running one is killed first. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn remove_container(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<(), Error> {
        container::remove::remove(&self.0, id).await
    }

    /// Changes the resource limits of a container; absent fields stay as they are.
    ///
    /// # Errors
    /// `InvalidArgument`; `FailedPrecondition` if the container has exited, or uses more memory than the new limit.
    /// Nothing is changed then.
    pub async fn update_container(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        resources: oci::Resources,
        oom_score_adj: Option<i32>,
    ) -> Result<(), Error> {
        container::request_update::request_update(&self.0, id.as_ref(), resources, oom_score_adj).await
    }

    /// Continues the log of a container in a new file of the same name (after a rotation).
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn reopen_log(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<(), Error> {
        container::reopen_log::reopen_log(&self.0, id.as_ref()).await
    }

    /// Writes the state of a running container into the archive `location`, an absolute path that must not exist yet.
    /// `timeout` zero means ten minutes.
    ///
    /// # Errors
    /// `FailedPrecondition` if CRIU is missing or does not support this kernel or this container, with its reason;
    /// `DeadlineExceeded`. The container keeps running, and no files are left over.
    pub async fn checkpoint_container(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        location: &Path,
        timeout: Duration,
    ) -> Result<(), Error> {
        container::checkpoint::checkpoint(&self.0, id.as_ref(), location, timeout).await
    }

    /// Executes a command in a container and waits for it to exit. A `timeout` of zero means no timeout. At most
    /// [`crate::Config::exec_sync_output_max`] bytes of each stream are returned. At the timeout all processes of the
    /// command are killed and the call fails with `DeadlineExceeded`. If the caller drops the future, the command is
    /// killed.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running, `InvalidArgument` if the command cannot be executed.
    pub async fn exec_sync(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<ExecOutput, Error> {
        exec::exec_sync::exec_sync(&self.0, id.as_ref(), command, timeout).await
    }

    /// Executes a command in a container and returns its streams.
    ///
    /// # Errors
    /// Those of [`Engine::exec_sync`].
    pub async fn exec(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        request: ExecRequest,
    ) -> Result<Session, Error> {
        exec::open::exec(&self.0, id.as_ref(), request).await
    }

    /// Attaches to the streams of the container's first process.
    ///
    /// # Errors
    /// `FailedPrecondition` if the container is not running.
    pub async fn attach(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
        request: ExecRequest,
    ) -> Result<Session, Error> {
        exec::attach::attach(&self.0, id.as_ref(), request).await
    }

    /// Registers a client that is going to attach to a container and to read its output. A container that is to be
    /// removed after its exit ([`crate::annotation::REMOVE_ENDED`]) is removed when all its registered clients are
    /// dropped.
    pub fn register_client(&self, id: &ContainerId) -> AttachedClient {
        self.0.attached_clients.register(id)
    }

    /// Waits until the container has exited and returns its exit code; `None` if that cannot be determined.
    ///
    /// # Errors
    /// `NotFound`, also if the container is removed before it was started.
    pub async fn wait(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<Option<i32>, Error> {
        container::exit::wait(&self.0, id).await
    }

    /// Returns the status of a container, given its id or an unambiguous prefix of it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn container(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<ContainerStatus, Error> {
        Ok(self.0.registry.container(id)?.status())
    }

    /// Returns the status of all containers, the oldest first.
    pub fn containers(&self) -> Vec<ContainerStatus> {
        let mut all: Vec<_> = self.0.registry.listed_containers().iter().map(|container| container.status()).collect();
        all.sort_by_key(|container| container.created_at);
        all
    }

    /// Calls `each` with the summary of every container, the oldest first, and collects the results.
    pub fn summarize_containers<T>(&self, each: impl FnMut(&ContainerSummary<'_>) -> Option<T>) -> Vec<T> {
        self.0.registry.summarize_containers(each)
    }

    /// Returns all that is known of a container, for the verbose CRI status.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn inspect_container(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<Value, Error> {
        let container = self.0.registry.container(id)?;
        let record = container.record();
        Ok(json!({
            "id": container.id(),
            "stage": record.stage,
            "phase": record.phase,
            "runtimeSpec": container.spec(&self.0.registry.records).ok(),
            "cgroup": container.cgroup(),
            "stopSignal": container.metadata.stop_signal,
            "imageId": container.metadata.image_id,
            "snapshot": self.0.node.images.upper(container.id().as_str()),
            "startTime": record.start_time,
        }))
    }
}

/// Informs NRI plugins of a container that stopped.
async fn announce_if_stopped(parts: &Arc<Parts>, id: &str) {
    if let Ok(container) = parts.registry.container(id) {
        container::announce_stop::announce_stop(parts, &container).await;
    }
}
