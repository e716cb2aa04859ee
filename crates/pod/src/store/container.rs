//! A container in memory: its immutable metadata, a snapshot of its state, and the lock of its slow operations.

mod broken;
mod cause;
mod config;
mod record;
mod status;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use cgroup::{Group, GroupPath, Hierarchies};
use tokio::sync::watch;

use super::{log_loss::LogLoss, pipe_calls::PipeCalls, record::Records};
use crate::{ContainerId, Error, SandboxId, clock, error::failed, operation::CreationState};

pub(crate) use broken::broken as broken_container;
pub(crate) use cause::Sent;
pub use cause::{Cause, START_ERROR};
pub use config::{
    ContainerConfig, DeviceMapping, GroupsPolicy, ImageVolume, Propagation, SeccompChoice, Security, UserChoice,
    VmProcess, Volume,
};
pub(crate) use record::{
    ContainerMetadata, ContainerPhase, ContainerRecord, ContainerRuntime, ContainerShim, ContainerVm, SIGKILLED,
    ShimProcess, unknown_exit,
};
pub use status::{ContainerState, ContainerStatus};

/// Name of the file in the container's state directory that holds its runtime specification.
pub(crate) const SPEC: &str = "spec.json";

/// Sandbox id, name and attempt of a container.
pub(crate) type ContainerName = (SandboxId, String, u32);

/// A container: its metadata, its current record, and the locks that protect them.
pub(crate) struct Container {
    pub(crate) metadata: ContainerMetadata,
    /// Held by create, start, stop, remove, update and checkpoint.
    pub(crate) busy: Arc<tokio::sync::Mutex<()>>,
    pub(crate) creation: CreationState,
    /// Whether the stop signal was sent: later stop requests only wait.
    pub(crate) stop_signal_sent: AtomicBool,
    /// The number of processes killed by the OOM killer, as of the last call of [`Self::has_new_oom_kill`].
    oom_kills: AtomicU64,
    /// The exit code that this process collected: a container becomes its child when the monitor dies.
    pub(crate) reaped: Mutex<Option<i32>>,
    /// Whether NRI plugins were offered its creation, so that a new plugin is synchronized with it.
    pub(crate) known_to_plugins: AtomicBool,
    /// Set once NRI plugins were informed that it stopped.
    pub(crate) stop_announced: tokio::sync::OnceCell<()>,
    /// Whether an eviction that an NRI plugin requested is in progress.
    pub(crate) is_evicted: AtomicBool,
    pub(crate) pipe_calls: Arc<PipeCalls>,
    pub(crate) shim: ShimLink,
    pub(crate) log_loss: LogLoss,
    pub(crate) guest_usage: GuestUsage,
    record: watch::Sender<Arc<ContainerRecord>>,
    record_lock: Mutex<()>,
    process: OnceLock<oci::Process>,
    group: OnceLock<Group>,
}

/// Usage of a container in a virtual machine.
#[derive(Default)]
pub(crate) struct GuestUsage {
    /// When its guest reported it last, in nanoseconds since the epoch, and what it reported.
    pub(crate) last: Mutex<Option<(u64, agent_api::Statistics)>>,
    /// Since when an answer is waited for.
    pub(crate) requested: watch::Sender<Option<Instant>>,
}

/// What this process knows of a container's shim.
#[derive(Default)]
pub(crate) struct ShimLink {
    /// The connection, once there is one.
    pub(crate) task: tokio::sync::Mutex<Option<Arc<shim::Task>>>,
    /// Whether its end was handled. Held while it is.
    pub(crate) ended: tokio::sync::Mutex<bool>,
    /// Whether the shim reported that the OOM killer killed a process.
    pub(crate) out_of_memory: AtomicBool,
    /// Whether a task waits for its exit.
    pub(crate) is_watched: AtomicBool,
}

impl Container {
    pub(crate) fn new(metadata: ContainerMetadata, record: ContainerRecord) -> Self {
        Self {
            metadata,
            busy: Arc::default(),
            creation: CreationState::default(),
            stop_signal_sent: AtomicBool::new(false),
            oom_kills: AtomicU64::new(0),
            reaped: Mutex::new(None),
            known_to_plugins: AtomicBool::new(false),
            stop_announced: tokio::sync::OnceCell::new(),
            is_evicted: AtomicBool::new(false),
            pipe_calls: Arc::default(),
            shim: ShimLink::default(),
            log_loss: LogLoss::default(),
            guest_usage: GuestUsage::default(),
            record: watch::Sender::new(Arc::new(record)),
            record_lock: Mutex::new(()),
            process: OnceLock::new(),
            group: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.metadata.id
    }

    /// Whether it was restored from a checkpoint.
    pub(crate) fn is_restored(&self) -> bool {
        self.metadata.vm.as_ref().is_some_and(|vm| vm.guest_id.is_some())
    }

    /// Returns the id that it has in its guest.
    pub(crate) fn guest_id(&self) -> &ContainerId {
        self.metadata.vm.as_ref().and_then(|vm| vm.guest_id.as_ref()).unwrap_or(&self.metadata.id)
    }

    /// Returns the name under which its caller requested it.
    pub(crate) fn name(&self) -> ContainerName {
        (self.metadata.sandbox.clone(), self.config().name.clone(), self.config().attempt)
    }

    /// Whether this is the sandbox container of its pod, which no list contains.
    pub(crate) fn is_sandbox_container(&self) -> bool {
        self.config().is_sandbox_container()
    }

    pub(crate) fn config(&self) -> &ContainerConfig {
        &self.metadata.config
    }

    /// Returns the current snapshot of the record.
    pub(crate) fn record(&self) -> Arc<ContainerRecord> {
        self.record.borrow().clone()
    }

    /// Returns a receiver of every later snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<ContainerRecord>> {
        self.record.subscribe()
    }

    /// Serializes changes of the record. The holder may be waiting for the tmpfs, so a contended lock is waited for off
    /// the async worker.
    pub(super) fn lock_record(&self) -> MutexGuard<'_, ()> {
        match self.record_lock.try_lock() {
            Ok(guard) => guard,
            Err(_) => offload::in_place(|| self.record_lock.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Replaces the record. The caller holds the lock of the record.
    pub(super) fn publish(&self, record: Arc<ContainerRecord>) {
        self.record.send_replace(record);
    }

    /// Changes the record. Published, but not written to disk.
    fn edit(&self, change: impl FnOnce(&mut ContainerRecord)) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        change(&mut record);
        self.publish(Arc::new(record));
    }

    /// Enters a stage of an operation. Published, but not written to disk.
    pub(crate) fn stage(&self, stage: &str) {
        self.edit(|record| record.enter(stage));
    }

    /// Like [`Self::stage`], for a container that is being stopped with this signal: once it exited, the stage and the
    /// signals that describe the exit are kept.
    pub(crate) fn stopping(&self, stage: &str, sent: Sent) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        if record.phase != ContainerPhase::Exited {
            record.enter(stage);
            record.sent.add(sent);
            self.publish(Arc::new(record));
        }
    }

    /// Adds an event to the current stage of the timeline. Published, but not written to disk.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        self.edit(|record| record.timeline.part(name, began, ended, failure));
    }

    /// Records that a client requested a signal. Published, but not written to disk.
    pub(crate) fn signal_requested(&self, signal: i32) {
        let now = clock::now();
        self.edit(|record| {
            record.timeline.part(format!("signal {signal} sent on request"), now, now, "");
            record.sent.add(Sent::Request(signal));
        });
    }

    /// Loads the user of the first process from the runtime specification, for lists. Published, but not written to
    /// disk.
    pub(crate) fn load_user(&self, records: &Records) {
        if let Ok(process) = self.process(records) {
            self.edit(|record| record.user = Some(process.user.clone()));
        }
    }

    /// Returns the resolved process of the specification: user, environment, capabilities. Reads it at the first call.
    pub(crate) fn process(&self, records: &Records) -> Result<&oci::Process, Error> {
        if let Some(process) = self.process.get() {
            return Ok(process);
        }
        let process = self.spec(records)?.process.unwrap_or_default();
        Ok(self.process.get_or_init(|| process))
    }

    /// Reads the runtime specification that the container was created with.
    pub(crate) fn spec(&self, records: &Records) -> Result<oci::Spec, Error> {
        records.read(self.id(), SPEC)
    }

    /// Sets the resolved process; only the first call has an effect.
    pub(crate) fn set_process(&self, process: oci::Process) {
        let _ = self.process.set(process);
    }

    /// Returns the path of its cgroup.
    pub(crate) fn cgroup(&self) -> String {
        self.record.borrow().cgroup.as_ref().unwrap_or(&self.metadata.cgroup).clone()
    }

    /// Records the limits that NRI plugins set. Published, but not written to disk: its creation writes the record.
    pub(crate) fn adjusted(&self, resources: Option<oci::Resources>, oom_score_adj: Option<i32>) {
        self.edit(|record| {
            // The rules of devices do not change, and are not part of an update.
            record.resources = resources.map(|resources| oci::Resources { devices: Vec::new(), ..resources });
            record.oom_score_adj = oom_score_adj;
        });
    }

    /// Returns its cgroup. It is opened at the first call, so that a later measurement costs only a few reads.
    pub(crate) fn group(&self, trees: &Hierarchies) -> Result<&Group, Error> {
        if let Some(group) = self.group.get() {
            return Ok(group);
        }
        let operation = format!("open the cgroup of container {}", self.id());
        let path = GroupPath::parse(&self.cgroup()).map_err(failed(&operation))?;
        let opened = Group::open(trees, &path).map_err(failed(&operation))?;
        Ok(self.group.get_or_init(|| opened))
    }

    /// Returns whether the OOM killer killed one of its processes since the last call.
    pub(crate) fn has_new_oom_kill(&self, trees: &Hierarchies) -> bool {
        let kills = offload::in_place(|| self.group(trees).map_or(0, Group::oom_kills));
        self.oom_kills.swap(kills, Ordering::AcqRel) < kills
    }

    /// Whether its stdio streams exist: it is set up and has not exited, even if its program was not started yet.
    pub(crate) fn has_streams(&self) -> bool {
        matches!(
            self.record.borrow().phase,
            ContainerPhase::Created | ContainerPhase::Starting | ContainerPhase::Running
        )
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.record.borrow().phase, ContainerPhase::Starting | ContainerPhase::Running)
    }

    /// Whether its creation is in progress, so that no caller knows its id yet.
    pub(crate) fn is_creating(&self) -> bool {
        self.creation.is_in_progress() && self.record.borrow().phase == ContainerPhase::Creating
    }

    pub(crate) fn state(&self) -> ContainerState {
        self.record.borrow().state()
    }

    pub(crate) fn status(&self) -> ContainerStatus {
        let record = self.record();
        let alive = !matches!(record.phase, ContainerPhase::Creating | ContainerPhase::Exited);
        ContainerStatus {
            id: self.metadata.id.clone(),
            sandbox: self.metadata.sandbox.clone(),
            config: Arc::clone(&self.metadata.config),
            image_id: self.metadata.image_id.clone(),
            state: record.state(),
            created_at: self.metadata.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            exit_code: record.exit_code,
            reason: match &record.broken {
                Some(_) => "BrokenRecord".to_owned(),
                None => record.reason.clone(),
            },
            message: record.broken.as_ref().unwrap_or(&record.message).clone(),
            log_path: self.metadata.log_path.clone(),
            pid: alive.then_some(record.pid).filter(|pid| *pid != 0),
            resources: record.resources.as_ref().unwrap_or(&self.metadata.config.resources).clone(),
            oom_score_adj: record.oom_score_adj.unwrap_or(self.metadata.config.oom_score_adj),
            stop_signal: self.metadata.stop_signal,
            user: record.user.clone().unwrap_or_default(),
            stage: record.stage.clone(),
            creating: self.is_creating(),
        }
    }
}
