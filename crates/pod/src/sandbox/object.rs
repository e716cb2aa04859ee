//! A sandbox in memory: what does not change, a snapshot of what does, the lock of its slow operations.

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
    engine::Inner,
    making::Making,
    state::{Kind, Records},
    timeline::Timeline,
};

/// `metadata.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxMetadata {
    pub(crate) id: String,
    pub(crate) config: Arc<SandboxConfig>,
    pub(crate) created_at: u64,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SandboxPhase {
    Reserved,
    Networked,
    Ready,
    Stopped,
}

impl SandboxPhase {
    /// It was never ready.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Reserved | Self::Networked)
    }
}

/// `status.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) phase: SandboxPhase,
    /// For people.
    pub(crate) stage: String,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) attachment: Option<Attachment>,
    /// Limits of the pod after the last update; `None`: as they were asked for at first.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// The same for what the pod itself costs.
    #[serde(default)]
    pub(crate) overhead: Option<oci::Resources>,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// Why what should be on record of it is not; absent: it is.
    #[serde(default)]
    pub(crate) broken: Option<String>,
}

impl SandboxRecord {
    /// Nothing is made yet.
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

    /// Another stage begins.
    pub(crate) fn enter(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
        self.timeline.enter(stage);
    }
}

/// See the module.
pub(crate) struct Sandbox {
    pub(crate) metadata: SandboxMetadata,
    /// Read by whoever makes a container in it, written by run, stop and remove.
    pub(crate) gate: Arc<tokio::sync::RwLock<()>>,
    pub(crate) making: Making,
    /// The pod's PID namespace, once its init runs.
    pub(crate) pid: tokio::sync::Mutex<Option<OwnedFd>>,
    /// Whoever makes it shall give up.
    cancelled: watch::Sender<bool>,
    record: watch::Sender<Arc<SandboxRecord>>,
    writing: Mutex<()>,
}

impl Sandbox {
    pub(crate) fn new(metadata: SandboxMetadata, record: SandboxRecord) -> Self {
        Self {
            metadata,
            gate: Arc::default(),
            making: Making::default(),
            pid: tokio::sync::Mutex::new(None),
            cancelled: watch::Sender::new(false),
            record: watch::Sender::new(Arc::new(record)),
            writing: Mutex::new(()),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.metadata.id
    }

    pub(crate) fn config(&self) -> &SandboxConfig {
        &self.metadata.config
    }

    /// A snapshot.
    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        self.record.borrow().clone()
    }

    /// To change the record: who has it may be waiting for the tmpfs.
    fn turn(&self) -> MutexGuard<'_, ()> {
        match self.writing.try_lock() {
            Ok(turn) => turn,
            Err(_) => offload::here(|| self.writing.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Changes the record: on the tmpfs first, then for all to see.
    pub(crate) fn update(&self, records: &Records, change: impl FnOnce(&mut SandboxRecord)) -> Result<(), Error> {
        let _turn = self.turn();
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

    /// Where the operation stands; not worth a write.
    pub(crate) fn stage(&self, stage: &str) {
        let _turn = self.turn();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.enter(stage);
        self.record.send_replace(Arc::new(record));
    }

    /// Something that was a part of the present stage; not worth a write either.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        let _turn = self.turn();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.timeline.part(name, began, ended, failure);
        self.record.send_replace(Arc::new(record));
    }

    /// The present stage failed; it may be tried again.
    pub(crate) fn failed(&self, why: &str) {
        let _turn = self.turn();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        record.timeline.fail(why);
        record.stage = format!("{}: {why}", record.stage.split(": ").next().unwrap_or_default());
        self.record.send_replace(Arc::new(record));
    }

    /// Notes what plugins of the network did for it.
    pub(crate) fn plugin_calls(&self, engine: &Inner) {
        let calls = engine.network.calls(self.id());
        let noted = self.record().timeline.stages().iter().filter(|stage| stage.part).map(|stage| stage.began).max();
        for call in calls.into_iter().filter(|call| noted.is_none_or(|noted| call.began > noted)) {
            let took = call.took.map_or(0, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            let name = format!("CNI plugin {} {}", call.plugin, call.command);
            self.part(name, call.began, call.began.saturating_add(took), &call.failure);
        }
    }

    /// Changes the record also where it cannot be written: on a full tmpfs what happened has happened. After a crash it
    /// is found out again.
    pub(crate) fn update_anyway(&self, records: &Records, change: impl FnOnce(&mut SandboxRecord)) {
        let _turn = self.turn();
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

    /// Has its making end; nothing where it is made.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Resolves when its making shall end.
    pub(crate) async fn cancelled(&self) {
        // The sender lives in self, so this fails never.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Its operation runs: nobody knows its id yet.
    pub(crate) fn is_making(&self) -> bool {
        self.making.is_under_way() && self.record.borrow().phase.is_early()
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
            making: self.is_making(),
        }
    }
}
