//! A container in memory: its immutable metadata, a snapshot of its state, and the lock of its slow operations.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cgroup::{Group, GroupPath};
use monitor_api::{CommandError, ExitStatus};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    ContainerConfig, ContainerState, ContainerStatus,
    cause::{Cause, Sent, SentSignals},
};
use crate::{
    Error, clock,
    creation::CreationState,
    engine::Inner,
    error::failed,
    session::PipeCalls,
    state::{Kind, Records},
    timeline::Timeline,
};

/// Name of the file in the container's state directory that holds its runtime specification.
pub(crate) const SPEC: &str = "spec.json";

/// Contents of `metadata.json`: what never changes after creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerMetadata {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) config: Arc<ContainerConfig>,
    pub(crate) image_id: String,
    pub(crate) created_at: u64,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) cgroup: String,
    pub(crate) stop_signal: i32,
}

/// Phase of a container's lifecycle (drawn in the module `container`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ContainerPhase {
    Creating,
    Created,
    Starting,
    Running,
    Exited,
}

impl ContainerPhase {
    fn state(self) -> ContainerState {
        match self {
            Self::Creating => ContainerState::Unknown,
            Self::Created | Self::Starting => ContainerState::Created,
            Self::Running => ContainerState::Running,
            Self::Exited => ContainerState::Exited,
        }
    }
}

/// Contents of `status.json`: what changes during the container's lifetime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) phase: ContainerPhase,
    /// The current stage in words, for people.
    pub(crate) stage: String,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) started_at: u64,
    pub(crate) finished_at: u64,
    pub(crate) exit_code: Option<i32>,
    /// The signal that terminated it, if any.
    #[serde(default)]
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Why it exited; `None` until then, and in the record of a daemon that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "SentSignals::is_empty")]
    pub(crate) sent: SentSignals,
    /// Resources after the last update; `None` means those of the original request.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// OOM score adjustment after the last update; `None` means that of the original request.
    #[serde(default)]
    pub(crate) oom_score_adj: Option<i32>,
    /// Why its command cannot be executed: the error that `start` returns.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    /// What makes it impossible to execute the refused command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused_command: Option<CommandError>,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// User of its first process; `None` until it is known.
    #[serde(default)]
    pub(crate) user: Option<oci::User>,
    /// Why its record is missing or unreadable; absent if the record is intact.
    #[serde(default)]
    pub(crate) broken: Option<String>,
    /// Exit status of a program that exited before `start` had recorded its outcome.
    #[serde(skip)]
    pub(crate) early_exit: Option<ExitStatus>,
}

impl ContainerRecord {
    fn state(&self) -> ContainerState {
        match self.phase {
            // Without its record only the monitor's knowledge is left: whether the process is alive.
            phase if self.broken.is_some() && phase != ContainerPhase::Exited => ContainerState::Unknown,
            phase => phase.state(),
        }
    }

    /// Whether it exited because its program could not be started.
    pub(crate) fn has_start_failed(&self) -> bool {
        matches!(self.cause, Some(Cause::StartFailed { .. }))
    }

    /// Whether it exited and the OOM killer had killed a process of it.
    pub(crate) fn is_oom_killed(&self) -> bool {
        matches!(self.cause, Some(Cause::Oom { .. }))
    }

    /// Enters a stage, and records the time in the timeline.
    pub(crate) fn enter(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
        self.timeline.enter(stage);
    }
}

impl Default for ContainerRecord {
    fn default() -> Self {
        let mut record = Self {
            phase: ContainerPhase::Creating,
            stage: String::new(),
            pid: 0,
            start_time: 0,
            started_at: 0,
            finished_at: 0,
            exit_code: None,
            signal: None,
            reason: String::new(),
            message: String::new(),
            cause: None,
            sent: SentSignals::default(),
            resources: None,
            oom_score_adj: None,
            refused: None,
            refused_command: None,
            timeline: Timeline::default(),
            user: None,
            broken: None,
            early_exit: None,
        };
        record.enter("creating");
        record
    }
}

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
    pub(crate) pipe_calls: Arc<PipeCalls>,
    record: watch::Sender<Arc<ContainerRecord>>,
    record_lock: Mutex<()>,
    process: OnceLock<oci::Process>,
    group: OnceLock<Group>,
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
            pipe_calls: Arc::default(),
            record: watch::Sender::new(Arc::new(record)),
            record_lock: Mutex::new(()),
            process: OnceLock::new(),
            group: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.metadata.id
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
    fn lock_record(&self) -> MutexGuard<'_, ()> {
        match self.record_lock.try_lock() {
            Ok(guard) => guard,
            Err(_) => offload::in_place(|| self.record_lock.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Applies `change` to the record. If it returns true, the record is written to the tmpfs and then published.
    ///
    /// # Errors
    /// The record could not be written; it is published all the same.
    pub(crate) fn update(
        &self,
        records: &Records,
        change: impl FnOnce(&mut ContainerRecord) -> bool,
    ) -> Result<(), Error> {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        let before = record.phase;
        if !change(&mut record) {
            return Ok(());
        }
        let written = records.write_status(Kind::Container, self.id(), &record);
        // A full tmpfs must not hide a state change from the callers that wait for it.
        let record = Arc::new(record);
        let changing = records.events().changing();
        self.record.send_replace(Arc::clone(&record));
        drop(changing);
        records.events().container(self, before, &record);
        written
    }

    /// Like [`Self::update`], but only logs a failure to write the record: on a full tmpfs the change has happened all
    /// the same. After a crash, recovery determines it again.
    pub(crate) fn update_anyway(&self, records: &Records, change: impl FnOnce(&mut ContainerRecord) -> bool) {
        if let Err(error) = self.update(records, change) {
            tracing::warn!("container {}: {error}", self.id());
        }
    }

    /// Enters a stage of an operation. Published, but not written to disk.
    pub(crate) fn stage(&self, stage: &str) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        record.enter(stage);
        self.record.send_replace(Arc::new(record));
    }

    /// Like [`Self::stage`], for a container that is being stopped with this signal: once it exited, the stage and the
    /// signals that describe the exit are kept.
    pub(crate) fn stopping(&self, stage: &str, sent: Sent) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        if record.phase != ContainerPhase::Exited {
            record.enter(stage);
            record.sent.add(sent);
            self.record.send_replace(Arc::new(record));
        }
    }

    /// Adds an event to the current stage of the timeline. Published, but not written to disk.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        record.timeline.part(name, began, ended, failure);
        self.record.send_replace(Arc::new(record));
    }

    /// Records that a client requested a signal. Published, but not written to disk.
    pub(crate) fn signal_requested(&self, signal: i32) {
        let _record_lock = self.lock_record();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        let now = clock::now();
        record.timeline.part(format!("signal {signal} sent on request"), now, now, "");
        record.sent.add(Sent::Request(signal));
        self.record.send_replace(Arc::new(record));
    }

    /// Loads the user of the first process from the runtime specification, for lists. Published, but not written to
    /// disk.
    pub(crate) fn load_user(&self, records: &Records) {
        if let Ok(process) = self.process(records) {
            let _record_lock = self.lock_record();
            let mut record = ContainerRecord::clone(&self.record.borrow());
            record.user = Some(process.user.clone());
            self.record.send_replace(Arc::new(record));
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
        records.read(Kind::Container, self.id(), SPEC)
    }

    /// Sets the resolved process; only the first call has an effect.
    pub(crate) fn set_process(&self, process: oci::Process) {
        let _ = self.process.set(process);
    }

    /// Returns its cgroup. It is opened at the first call, so that a later measurement costs only a few reads.
    pub(crate) fn group(&self, engine: &Inner) -> Result<&Group, Error> {
        if let Some(group) = self.group.get() {
            return Ok(group);
        }
        let operation = format!("open the cgroup of container {}", self.id());
        let path = GroupPath::parse(&self.metadata.cgroup).map_err(failed(&operation))?;
        let opened = Group::open(&engine.trees, &path).map_err(failed(&operation))?;
        Ok(self.group.get_or_init(|| opened))
    }

    /// Returns whether the OOM killer killed one of its processes since the last call.
    pub(crate) fn has_new_oom_kill(&self, engine: &Inner) -> bool {
        let kills = offload::in_place(|| self.group(engine).map_or(0, Group::oom_kills));
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
