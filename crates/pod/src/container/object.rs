//! A container in memory: what does not change, a snapshot of what does, the lock of its slow operations.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cgroup::{Group, GroupPath};
use monitor_api::ExitStatus;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{ContainerConfig, ContainerState, ContainerStatus};
use crate::{
    Error,
    engine::Inner,
    error::failed,
    making::Making,
    session::PipeCalls,
    state::{Kind, Records},
    timeline::Timeline,
};

/// The record's file of the runtime specification.
pub(crate) const SPEC: &str = "spec.json";

/// `metadata.json`.
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

/// Where it stands.
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

/// `status.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) phase: ContainerPhase,
    /// For people.
    pub(crate) stage: String,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) started_at: u64,
    pub(crate) finished_at: u64,
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default)]
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Resources after the last update; `None`: as they were asked for at first.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// After the last update; `None`: as it was asked for at first.
    #[serde(default)]
    pub(crate) oom_score_adj: Option<i32>,
    /// Its command cannot be executed: what `start` will say.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// Who its first process is; `None` before that is known.
    #[serde(default)]
    pub(crate) user: Option<oci::User>,
    /// Why what should be on record of it is not; absent: it is.
    #[serde(default)]
    pub(crate) broken: Option<String>,
    /// Its program ended while `start` was not done.
    #[serde(skip)]
    pub(crate) early_end: Option<ExitStatus>,
}

impl ContainerRecord {
    fn state(&self) -> ContainerState {
        match self.phase {
            // Whether it runs is known; what it is, is not.
            phase if self.broken.is_some() && phase != ContainerPhase::Exited => ContainerState::Unknown,
            phase => phase.state(),
        }
    }

    /// Another stage begins.
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
            resources: None,
            oom_score_adj: None,
            refused: None,
            timeline: Timeline::default(),
            user: None,
            broken: None,
            early_end: None,
        };
        record.enter("creating");
        record
    }
}

/// See the module.
pub(crate) struct Container {
    pub(crate) metadata: ContainerMetadata,
    /// Held by create, start, stop, remove and update.
    pub(crate) busy: Arc<tokio::sync::Mutex<()>>,
    pub(crate) making: Making,
    /// Its stop signal was sent: those who stop it again only wait.
    pub(crate) asked: AtomicBool,
    /// How many of its processes the OOM killer had ended, when somebody asked.
    oom_kills: AtomicU64,
    /// The exit code of a process that fell to this one when its monitor died, and was reaped here.
    pub(crate) reaped: Mutex<Option<i32>>,
    pub(crate) pipe_calls: Arc<PipeCalls>,
    record: watch::Sender<Arc<ContainerRecord>>,
    writing: Mutex<()>,
    process: OnceLock<oci::Process>,
    group: OnceLock<Group>,
}

impl Container {
    pub(crate) fn new(metadata: ContainerMetadata, record: ContainerRecord) -> Self {
        Self {
            metadata,
            busy: Arc::default(),
            making: Making::default(),
            asked: AtomicBool::new(false),
            oom_kills: AtomicU64::new(0),
            reaped: Mutex::new(None),
            pipe_calls: Arc::default(),
            record: watch::Sender::new(Arc::new(record)),
            writing: Mutex::new(()),
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

    /// A snapshot.
    pub(crate) fn record(&self) -> Arc<ContainerRecord> {
        self.record.borrow().clone()
    }

    /// Every later snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<ContainerRecord>> {
        self.record.subscribe()
    }

    /// To change the record: who has it may be waiting for the tmpfs.
    fn turn(&self) -> MutexGuard<'_, ()> {
        match self.writing.try_lock() {
            Ok(turn) => turn,
            Err(_) => offload::here(|| self.writing.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Changes the record where `change` says so: on the tmpfs first, then for all to see.
    pub(crate) fn update(
        &self,
        records: &Records,
        change: impl FnOnce(&mut ContainerRecord) -> bool,
    ) -> Result<(), Error> {
        let _turn = self.turn();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        let before = record.phase;
        if !change(&mut record) {
            return Ok(());
        }
        let written = records.write_status(Kind::Container, self.id(), &record);
        // A full tmpfs must not hide what happened from those who wait for it.
        let record = Arc::new(record);
        let changing = records.events().changing();
        self.record.send_replace(Arc::clone(&record));
        drop(changing);
        records.events().container(self, before, &record);
        written
    }

    /// Changes the record also where it cannot be written: on a full tmpfs what happened has happened. After a crash it
    /// is found out again.
    pub(crate) fn update_anyway(&self, records: &Records, change: impl FnOnce(&mut ContainerRecord) -> bool) {
        if let Err(error) = self.update(records, change) {
            tracing::warn!("container {}: {error}", self.id());
        }
    }

    /// Where the operation stands; not worth a write.
    pub(crate) fn stage(&self, stage: &str) {
        let _turn = self.turn();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        record.enter(stage);
        self.record.send_replace(Arc::new(record));
    }

    /// The same, for one that is being ended: what its end says stays.
    pub(crate) fn stopping(&self, stage: &str) {
        let _turn = self.turn();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        if record.phase != ContainerPhase::Exited {
            record.enter(stage);
            self.record.send_replace(Arc::new(record));
        }
    }

    /// Something that was a part of the present stage; not worth a write either.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        let _turn = self.turn();
        let mut record = ContainerRecord::clone(&self.record.borrow());
        record.timeline.part(name, began, ended, failure);
        self.record.send_replace(Arc::new(record));
    }

    /// Takes who it is from its specification, for lists; not worth a write.
    pub(crate) fn find_user(&self, records: &Records) {
        if let Ok(process) = self.process(records) {
            let _turn = self.turn();
            let mut record = ContainerRecord::clone(&self.record.borrow());
            record.user = Some(process.user.clone());
            self.record.send_replace(Arc::new(record));
        }
    }

    /// The resolved process: who it is, its environment, its rights.
    pub(crate) fn process(&self, records: &Records) -> Result<&oci::Process, Error> {
        if let Some(process) = self.process.get() {
            return Ok(process);
        }
        let process = self.spec(records)?.process.unwrap_or_default();
        Ok(self.process.get_or_init(|| process))
    }

    /// The runtime specification it was made by.
    pub(crate) fn spec(&self, records: &Records) -> Result<oci::Spec, Error> {
        records.read(Kind::Container, self.id(), SPEC)
    }

    /// Sets the resolved process, once.
    pub(crate) fn resolved(&self, process: oci::Process) {
        let _ = self.process.set(process);
    }

    /// Its cgroup, opened once: a measurement then is a few reads.
    pub(crate) fn group(&self, engine: &Inner) -> Result<&Group, Error> {
        if let Some(group) = self.group.get() {
            return Ok(group);
        }
        let told = format_args!("open the cgroup of container {}", self.id()).to_string();
        let path = GroupPath::parse(&self.metadata.cgroup).map_err(failed(&told))?;
        let opened = Group::open(&engine.trees, &path).map_err(failed(&told))?;
        Ok(self.group.get_or_init(|| opened))
    }

    /// Whether the OOM killer ended a process of it since this was asked last.
    pub(crate) fn has_new_oom_kill(&self, engine: &Inner) -> bool {
        let kills = offload::here(|| self.group(engine).map_or(0, Group::oom_kills));
        self.oom_kills.swap(kills, Ordering::AcqRel) < kills
    }

    /// Set up and not ended: its streams are there, whether or not its program runs yet.
    pub(crate) fn has_streams(&self) -> bool {
        matches!(
            self.record.borrow().phase,
            ContainerPhase::Created | ContainerPhase::Starting | ContainerPhase::Running
        )
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.record.borrow().phase, ContainerPhase::Starting | ContainerPhase::Running)
    }

    /// Its operation runs: nobody knows its id yet.
    pub(crate) fn is_making(&self) -> bool {
        self.making.is_under_way() && self.record.borrow().phase == ContainerPhase::Creating
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
            making: self.is_making(),
        }
    }
}
