//! The public face: each method is one line to the module that does it.

mod inner;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    Config, ContainerConfig, ContainerStatus, Error, ExecOutput, ExecRequest, SandboxConfig, SandboxStatus, Session,
    Users, container, health, recover, sandbox,
};

pub(crate) use inner::{ContainerName, Inner, blocking, detached, name_of};

/// Whether a part works, and why not.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Whether it does.
    pub ready: bool,
    /// One word, empty when ready.
    pub reason: String,
    /// One sentence, empty when ready.
    pub message: String,
}

impl Condition {
    pub(crate) fn of<E: std::fmt::Display>(outcome: Result<(), E>, reason: &str) -> Self {
        match outcome {
            Ok(()) => Self { ready: true, reason: String::new(), message: String::new() },
            Err(error) => Self { ready: false, reason: reason.to_owned(), message: error.to_string() },
        }
    }
}

/// How the engine is.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Whether containers can be made.
    pub runtime: Condition,
    /// Whether pods get a network.
    pub network: Condition,
    /// Whether pods can have user namespaces.
    pub user_namespaces: Condition,
    /// Runtime handlers; the empty name is the default one.
    pub handlers: Vec<String>,
    /// More, for `info`.
    pub info: BTreeMap<String, Value>,
}

/// The engine. Cheap to clone. Dropping the last clone leaves containers running.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

impl Engine {
    /// Recovers what runs, starts or finds the monitor, reconciles the ledger, then serves. Needs a runtime with I/O
    /// and time; makes the process a subreaper and raises its soft limit of open files.
    ///
    /// # Errors
    /// When a directory, the image store, the network or the monitor cannot be opened. One broken record never is one.
    pub async fn open(config: Config) -> Result<Self, Error> {
        recover::open(config).await.map(Self)
    }

    /// How the engine is. Waits at most a second for parts that hang ([`crate::Silence`]), after the start some
    /// seconds.
    pub async fn status(&self) -> EngineStatus {
        let engine = &self.0;
        let ((network, description), monitor) =
            tokio::join!(engine.health.network(), engine.monitor.welcome_within(health::RESTORED));
        let mut info = BTreeMap::new();
        info.insert("network".to_owned(), json!(description));
        info.insert("stateDir".to_owned(), json!(engine.config.state_dir));
        info.insert("dataDir".to_owned(), json!(engine.config.data_dir));
        info.insert("health".to_owned(), engine.health.info());
        if let Ok(monitor) = &monitor {
            let told = json!({"pid": monitor.pid, "version": monitor.version, "contract": format!("{}.{}", monitor.major, monitor.minor)});
            info.insert("monitor".to_owned(), told);
        }
        let user_namespaces = engine.known_user_namespaces().await;
        let told = user_namespaces.as_ref().err().map_or(json!(true), |why| json!(why));
        info.insert("userNamespaces".to_owned(), told);
        info.insert("apparmor".to_owned(), container::apparmor::describe());
        EngineStatus {
            runtime: match monitor {
                Ok(_) => engine.health.monitor.condition(),
                Err(error) => Condition::of(Err(error), "MonitorUnavailable"),
            },
            network,
            user_namespaces: Condition::of(user_namespaces, "NotSupported"),
            handlers: engine.handlers(),
            info,
        }
    }

    /// Whether the data disk takes what is written now, for callers that are about to rely on it. Waits at most 5 s.
    pub async fn data_disk(&self) -> Condition {
        self.0.health.data_disk().await
    }

    /// Threads of this process that are blocked in a call on a pipe that a process of a container holds inside the
    /// kernel. Only the end of that process, or of its container, ends the call: until then an execve(2) of this
    /// process does not return, and its exit does not complete.
    pub fn blocked_pipe_calls(&self) -> usize {
        crate::session::blocked_pipe_calls()
    }

    /// Processes of containers that keep a pipe of this process locked inside the kernel, which may be without an
    /// effect so far: a pipe that carries nothing is not read. Their end, or that of their container, unlocks it; until
    /// then an execve(2) of this process does not return. Looks at every process of the machine.
    pub fn pipe_holders(&self) -> Vec<crate::PipeHolder> {
        crate::pipe_holders::holders_of_own_pipes(&self.0.config.state_dir)
    }

    /// For how long parts that may hang have not answered.
    pub fn silence(&self) -> crate::Silence {
        self.0.health.silence()
    }

    /// The image store.
    pub fn images(&self) -> &image::Store {
        &self.0.images
    }

    /// Makes a sandbox and returns its id; one of the same name that is being made is joined, one that is ready is it.
    ///
    /// # Errors
    /// `InvalidArgument`; whatever failed. Nothing is left then.
    pub async fn run_sandbox(&self, config: SandboxConfig) -> Result<String, Error> {
        sandbox::run::run(&self.0, config).await
    }

    /// Ends its containers and takes its network away; its record stays. An unknown one succeeds.
    ///
    /// # Errors
    /// Every step that failed; call again.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        sandbox::stop::stop(&self.0, id).await
    }

    /// Stops a pod that no container uses, and returns whether it is stopped (an unknown one is). A container that is
    /// just being made is waited for, and uses it.
    ///
    /// # Errors
    /// As [`Engine::stop_sandbox`].
    pub async fn stop_unused_sandbox(&self, id: &str, users: Users) -> Result<bool, Error> {
        sandbox::stop::stop_unused(&self.0, id, users).await
    }

    /// Stops it and removes it with its containers. An unknown one succeeds.
    ///
    /// # Errors
    /// Every step that failed; call again.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        sandbox::remove::remove(&self.0, id).await
    }

    /// By id or unambiguous prefix.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn sandbox(&self, id: &str) -> Result<SandboxStatus, Error> {
        Ok(self.0.sandbox(id)?.status())
    }

    /// All, the oldest first.
    pub fn sandboxes(&self) -> Vec<SandboxStatus> {
        let mut all: Vec<_> = self.0.sandboxes().iter().map(|sandbox| sandbox.status()).collect();
        all.sort_by_key(|sandbox| sandbox.created_at);
        all
    }

    /// Makes a container that waits for its start and returns its id. A caller that repeats itself gets the same one.
    ///
    /// # Errors
    /// `NotFound` for sandbox and image, `InvalidArgument`, `AlreadyExists` where one of that name and attempt runs
    /// with another configuration; whatever failed. Nothing is left then.
    pub async fn create_container(&self, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
        container::create::create(&self.0, sandbox, config).await
    }

    /// Lets its program run.
    ///
    /// # Errors
    /// `InvalidArgument` when the command cannot be executed: the container then ended with reason `StartError`.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        container::start::start(&self.0, id).await
    }

    /// Asks it to end, waits as long as `grace`, then kills every process of it. An unknown one succeeds.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the kernel does not end what was killed.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let (engine, id) = self.own(id);
        detached(async move { container::stop::stop(&engine, &id, grace).await }).await
    }

    /// Sends a signal (1 to 64) to the first process, or to every process.
    ///
    /// # Errors
    /// `FailedPrecondition` when it does not run.
    pub async fn kill_container(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        container::kill::kill(&self.0, id, signal, all).await
    }

    /// Removes it; one that runs is killed first. An unknown one succeeds.
    ///
    /// # Errors
    /// Every step that failed; call again.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        container::remove::remove(&self.0, id).await
    }

    /// By id or unambiguous prefix.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn container(&self, id: &str) -> Result<ContainerStatus, Error> {
        Ok(self.0.container(id)?.status())
    }

    /// All, the oldest first.
    pub fn containers(&self) -> Vec<ContainerStatus> {
        let mut all: Vec<_> = self.0.containers().iter().map(|container| container.status()).collect();
        all.sort_by_key(|container| container.created_at);
        all
    }

    /// Continues its log in a new file of the same name (after a rotation).
    ///
    /// # Errors
    /// `FailedPrecondition` when it does not run.
    pub async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        container::reopen_log::reopen_log(&self.0, id).await
    }

    /// Changes its limits; what is not said stays as it is.
    ///
    /// # Errors
    /// `InvalidArgument`; `FailedPrecondition` when it ended, or uses more memory than it shall have. Nothing is
    /// changed then.
    pub async fn update_container(
        &self,
        id: &str,
        resources: oci::Resources,
        oom_score_adj: Option<i32>,
    ) -> Result<(), Error> {
        container::update::update(&self.0, id, resources, oom_score_adj).await
    }

    /// Runs a command to its end. `timeout` zero: none. Output is bounded (16 MiB each); at the deadline every process
    /// of the command is killed, then it is `DeadlineExceeded`. A caller that is gone ends the command.
    ///
    /// # Errors
    /// `FailedPrecondition` when the container does not run, `InvalidArgument` when the command cannot be executed.
    pub async fn exec_sync(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<ExecOutput, Error> {
        container::exec_sync::exec_sync(&self.0, id, command, timeout).await
    }

    /// Runs a command with streams.
    ///
    /// # Errors
    /// As [`Engine::exec_sync`].
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        container::exec::exec(&self.0, id, request).await
    }

    /// Streams of the container's first process.
    ///
    /// # Errors
    /// `FailedPrecondition` when it does not run.
    pub async fn attach(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        container::attach::attach(&self.0, id, request).await
    }

    /// Resolves when the container ended; `None` where its exit code cannot be known.
    ///
    /// # Errors
    /// `NotFound`, also when it is removed before it was started.
    pub async fn wait(&self, id: &str) -> Result<Option<i32>, Error> {
        container::end::wait(&self.0, id).await
    }

    /// Everything known, for `inspect -v`.
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

    /// Everything known, for `inspect -v`.
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

    fn own(&self, id: &str) -> (Arc<Inner>, String) {
        (Arc::clone(&self.0), id.to_owned())
    }
}
