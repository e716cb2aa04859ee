//! Operations on pods.

use serde_json::{Value, json};

use super::Engine;
use crate::{
    Error, PodCheckpoint, PodRestore, PodStream, PodUsers, RestoredPod, SandboxConfig, SandboxId, SandboxStatus,
    SandboxSummary, Selects, annotation, sandbox,
};

impl Engine {
    /// Creates a sandbox and returns its id. If a sandbox of the same name is being created, waits for it; if one is
    /// ready, returns its id.
    ///
    /// # Errors
    /// `InvalidArgument`, or the error of the step that failed. Everything is rolled back then.
    pub async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, Error> {
        sandbox::run::run(&self.0, config).await
    }

    /// Stops the containers of a sandbox and detaches it from the network; its record stays. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn stop_sandbox(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<(), Error> {
        sandbox::stop::stop(&self.0, id).await
    }

    /// Stops a pod that is not in use, and reports whether it is stopped (an unknown pod is). If a container is being
    /// created in the pod, waits for it; that container counts as a user of the pod.
    ///
    /// # Errors
    /// Those of [`Engine::stop_sandbox`].
    pub async fn stop_unused_sandbox(
        &self,
        id: &(impl Selects<SandboxId> + ?Sized),
        users: PodUsers,
    ) -> Result<bool, Error> {
        sandbox::stop::stop_unused(&self.0, id, users).await
    }

    /// Stops a sandbox and removes it together with its containers. Unknown ids succeed.
    ///
    /// # Errors
    /// The errors of all steps that failed; the call can be repeated.
    pub async fn remove_sandbox(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<(), Error> {
        sandbox::remove::remove(&self.0, id).await
    }

    /// Writes a pod in a virtual machine to a directory, with its memory and the writable layers of its containers. The pod continues, also
    /// if the caller drops the future.
    ///
    /// # Errors
    /// `Unimplemented` if the handler of the pod or its programs cannot, `InvalidArgument`, `FailedPrecondition`, `DeadlineExceeded`. The
    /// directory is empty then.
    pub async fn checkpoint_sandbox(
        &self,
        id: &(impl Selects<SandboxId> + ?Sized),
        request: PodCheckpoint,
    ) -> Result<(), Error> {
        sandbox::checkpoint::checkpoint(&self.0, id.as_ref(), request).await
    }

    /// Creates a pod from a checkpoint. Its containers are created, and continue when they are started.
    ///
    /// # Errors
    /// `InvalidArgument` if the request does not fit the checkpoint, or the error of the step that failed. Everything is rolled back then,
    /// also if the caller drops the future.
    pub async fn restore_sandbox(&self, request: PodRestore) -> Result<RestoredPod, Error> {
        sandbox::restore::restore(&self.0, request).await
    }

    /// Changes the limits and the overhead of a pod; absent arguments leave them as they are.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`; `FailedPrecondition` if the pod is stopped. Nothing is changed then.
    pub async fn update_sandbox(
        &self,
        id: &(impl Selects<SandboxId> + ?Sized),
        overhead: Option<oci::Resources>,
        resources: Option<oci::Resources>,
    ) -> Result<(), Error> {
        sandbox::update::update(&self.0, id.as_ref(), overhead, resources).await
    }

    /// Has the plugins of a pod's networks check its attachments (CNI's `CHECK`). Returns the problem that they report;
    /// the pod stays as it is.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn check_network(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<Option<String>, Error> {
        let sandbox = self.0.registry.sandbox(id)?;
        Ok(sandbox::check_network::check(&self.0, &sandbox).await.err().map(|error| error.to_string()))
    }

    /// Connects to a port on the loopback device of a pod, or of the node if the pod uses the node's network. Tries
    /// 127.0.0.1, then ::1.
    ///
    /// # Errors
    /// `FailedPrecondition` if the pod is not ready, `Unavailable` if nothing listens on the port.
    pub async fn port_forward(
        &self,
        sandbox: &(impl Selects<SandboxId> + ?Sized),
        port: u16,
    ) -> Result<PodStream, Error> {
        sandbox::port_forward::port_forward(&self.0, sandbox.as_ref(), port).await
    }

    /// Returns the status of a sandbox, given its id or an unambiguous prefix of it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn sandbox(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<SandboxStatus, Error> {
        Ok(self.0.registry.sandbox(id)?.status())
    }

    /// Returns the pid of a process in the namespaces of a sandbox: that of a container. `None` if no container has one.
    pub fn pid_in_sandbox(&self, id: &SandboxId) -> Option<u32> {
        self.0.registry.containers_of(id).iter().find_map(|container| container.status().pid)
    }

    /// Returns the status of all sandboxes, the oldest first.
    pub fn sandboxes(&self) -> Vec<SandboxStatus> {
        let mut all: Vec<_> = self.0.registry.sandboxes().iter().map(|sandbox| sandbox.status()).collect();
        all.sort_by_key(|sandbox| sandbox.created_at);
        all
    }

    /// Calls `each` with the summary of every pod, the oldest first, and collects the results.
    pub fn summarize_sandboxes<T>(&self, each: impl FnMut(&SandboxSummary<'_>) -> Option<T>) -> Vec<T> {
        self.0.registry.summarize_sandboxes(each)
    }

    /// Returns all that is known of a sandbox, for the verbose CRI status.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn inspect_sandbox(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<Value, Error> {
        let sandbox = self.0.registry.sandbox(id)?;
        let record = sandbox.record();
        Ok(json!({
            "id": sandbox.id(),
            "stage": record.stage,
            "phase": record.phase,
            "netns": record.netns,
            "cniResult": record.attachment.as_ref().map(|attachment| &attachment.raw),
            "attachment": record.attachment,
            annotation::NETWORK_STATUS: record.attachment.as_ref().map(|attachment| attachment.network_status()),
            "networkCheck": self.0.node.network.failed_check(sandbox.id().as_str()),
            "cgroup": self.0.node.cgroup_of(&sandbox),
            "resources": record.resources.as_ref().or(sandbox.config().resources.as_ref()),
            "overhead": record.overhead.as_ref().or(sandbox.config().overhead.as_ref()),
        }))
    }
}
