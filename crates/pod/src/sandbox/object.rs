//! A sandbox in memory: its immutable metadata, a snapshot of its state, and the lock of its slow operations.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use network::Attachment;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{SandboxConfig, SandboxState, SandboxStatus};
use crate::{
    Error,
    creation::CreationState,
    engine::Inner,
    state::{Kind, Records},
    timeline::Timeline,
};

/// Contents of `metadata.json`: what never changes after creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxMetadata {
    pub(crate) id: String,
    pub(crate) config: Arc<SandboxConfig>,
    pub(crate) created_at: u64,
}

/// Phase of a sandbox's lifecycle (drawn in the module `sandbox`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SandboxPhase {
    Reserved,
    Networked,
    Ready,
    Stopped,
}

impl SandboxPhase {
    /// Reports whether the sandbox has never been ready.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Reserved | Self::Networked)
    }
}

/// Contents of `status.json`: what changes during the sandbox's lifetime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) phase: SandboxPhase,
    /// The current stage in words, for people.
    pub(crate) stage: String,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) attachment: Option<Attachment>,
    /// Limits of the pod after the last update; `None` means those of the original request.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// Overhead after the last update; `None` means that of the original request.
    #[serde(default)]
    pub(crate) overhead: Option<oci::Resources>,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// Why its record is missing or unreadable; absent if the record is intact.
    #[serde(default)]
    pub(crate) broken: Option<String>,
}

impl SandboxRecord {
    /// Returns the record of a new sandbox, of which nothing has been created.
    pub(crate) fn reserved() -> Self {
        let mut record = Self {
            phase: SandboxPhase::Reserved,
            stage: String::new(),
            netns: None,
            attachment: None,
            resources: None,
            overhead: None,
            timeline: Timeline::default(),
            broken: None,
        };
        record.enter("reserved");
        record
    }

    /// Enters a stage, and records the time in the timeline.
    pub(crate) fn enter(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
        self.timeline.enter(stage);
    }
}

/// A sandbox: its metadata, its current record, and the locks that protect them.
pub(crate) struct Sandbox {
    pub(crate) metadata: SandboxMetadata,
    /// Held for reading while a container is created in it, for writing by run, stop and remove.
    pub(crate) gate: Arc<tokio::sync::RwLock<()>>,
    pub(crate) creation: CreationState,
    /// The pod's PID namespace, once its init runs.
    pub(crate) pid: tokio::sync::Mutex<Option<OwnedFd>>,
    /// Set when its creation must be aborted.
    cancelled: watch::Sender<bool>,
    record: watch::Sender<Arc<SandboxRecord>>,
    record_lock: Mutex<()>,
}

impl Sandbox {
    pub(crate) fn new(metadata: SandboxMetadata, record: SandboxRecord) -> Self {
        Self {
            metadata,
            gate: Arc::default(),
            creation: CreationState::default(),
            pid: tokio::sync::Mutex::new(None),
            cancelled: watch::Sender::new(false),
            record: watch::Sender::new(Arc::new(record)),
            record_lock: Mutex::new(()),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.metadata.id
    }

    pub(crate) fn config(&self) -> &SandboxConfig {
        &self.metadata.config
    }

    /// Returns the current snapshot of the record.
    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        self.record.borrow().clone()
    }

    /// Serializes changes of the record. The holder may be waiting for the tmpfs, so a contended lock is waited for off
    /// the async worker.
    fn lock_record(&self) -> MutexGuard<'_, ()> {
        match self.record_lock.try_lock() {
            Ok(guard) => guard,
            Err(_) => offload::in_place(|| self.record_lock.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Applies `change` to the record, writes it to the tmpfs, and then publishes it.
    ///
    /// # Errors
    /// The record could not be written; it is not changed then.
    pub(crate) fn update(&self, records: &Records, change: impl FnOnce(&mut SandboxRecord)) -> Result<(), Error> {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        let before = record.phase;
        change(&mut record);
        let now = record.phase;
        records.write_status(Kind::Sandbox, self.id(), &record)?;
        let changing = records.events().changing();
        self.record.send_replace(Arc::new(record));
        drop(changing);
        records.events().sandbox(self, before, now);
        Ok(())
    }

    /// Enters a stage of an operation. Published, but not written to disk.
    pub(crate) fn stage(&self, stage: &str) {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.enter(stage);
        self.record.send_replace(Arc::new(record));
    }

    /// Adds an event to the current stage of the timeline. Published, but not written to disk.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.timeline.part(name, began, ended, failure);
        self.record.send_replace(Arc::new(record));
    }

    /// Marks the current stage as failed; it may be retried. Published, but not written to disk.
    pub(crate) fn failed(&self, why: &str) {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.timeline.fail(why);
        record.stage = format!("{}: {why}", record.stage.split(": ").next().unwrap_or_default());
        self.record.send_replace(Arc::new(record));
    }

    /// Adds the calls of network plugins for this sandbox to its timeline.
    pub(crate) fn add_plugin_calls(&self, engine: &Inner) {
        let calls = engine.network.calls(self.id());
        let last = self.record().timeline.stages().iter().filter(|stage| stage.part).map(|stage| stage.began).max();
        for call in calls.into_iter().filter(|call| last.is_none_or(|last| call.began > last)) {
            let took = call.took.map_or(0, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            let name = format!("CNI plugin {} {}", call.plugin, call.command);
            self.part(name, call.began, call.began.saturating_add(took), &call.failure);
        }
    }

    /// Like [`Self::update`], but only logs a failure to write the record: on a full tmpfs the change has happened all
    /// the same. After a crash, recovery determines it again.
    pub(crate) fn update_anyway(&self, records: &Records, change: impl FnOnce(&mut SandboxRecord)) {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        let before = record.phase;
        change(&mut record);
        let now = record.phase;
        if let Err(error) = records.write_status(Kind::Sandbox, self.id(), &record) {
            tracing::warn!("pod {}: {error}", self.id());
        }
        let changing = records.events().changing();
        self.record.send_replace(Arc::new(record));
        drop(changing);
        records.events().sandbox(self, before, now);
    }

    /// Aborts its creation; has no effect on a sandbox that was created.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits until its creation is aborted.
    pub(crate) async fn cancelled(&self) {
        // The sender is a field of self, so this cannot fail.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Whether its creation is in progress, so that no caller knows its id yet.
    pub(crate) fn is_creating(&self) -> bool {
        self.creation.is_in_progress() && self.record.borrow().phase.is_early()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.record.borrow().phase == SandboxPhase::Ready
    }

    pub(crate) fn status(&self) -> SandboxStatus {
        let record = self.record();
        SandboxStatus {
            id: self.metadata.id.clone(),
            config: Arc::clone(&self.metadata.config),
            state: if record.phase == SandboxPhase::Ready { SandboxState::Ready } else { SandboxState::NotReady },
            created_at: self.metadata.created_at,
            ips: record.attachment.as_ref().map(|a| a.ips.clone()).unwrap_or_default(),
            netns: record.netns.clone(),
            stage: record.stage.clone(),
            creating: self.is_creating(),
        }
    }
}
