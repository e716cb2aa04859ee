//! A sandbox in memory: what does not change, a snapshot of what does, the lock of its slow operations.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use network::Attachment;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{SandboxConfig, SandboxState, SandboxStatus};
use crate::{
    Error,
    state::{Kind, Records},
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

/// `status.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) phase: SandboxPhase,
    /// For people.
    pub(crate) stage: String,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) attachment: Option<Attachment>,
}

impl SandboxRecord {
    /// Nothing is made yet.
    pub(crate) fn reserved() -> Self {
        Self { phase: SandboxPhase::Reserved, stage: "reserved".into(), netns: None, attachment: None }
    }
}

/// See the module.
pub(crate) struct Sandbox {
    pub(crate) metadata: SandboxMetadata,
    /// Read by whoever makes a container in it, written by run, stop and remove.
    pub(crate) gate: Arc<tokio::sync::RwLock<()>>,
    /// The pod's PID namespace, once its init runs.
    pub(crate) pid: tokio::sync::Mutex<Option<OwnedFd>>,
    record: watch::Sender<Arc<SandboxRecord>>,
    writing: Mutex<()>,
}

impl Sandbox {
    pub(crate) fn new(metadata: SandboxMetadata, record: SandboxRecord) -> Self {
        Self {
            metadata,
            gate: Arc::default(),
            pid: tokio::sync::Mutex::new(None),
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

    /// Changes the record: on the tmpfs first, then for all to see.
    pub(crate) fn update(&self, records: &Records, change: impl FnOnce(&mut SandboxRecord)) -> Result<(), Error> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = SandboxRecord::clone(&self.record.borrow());
        let before = record.phase;
        change(&mut record);
        let now = record.phase;
        records.write_status(Kind::Sandbox, self.id(), &record)?;
        self.record.send_replace(Arc::new(record));
        records.events().sandbox(self, before, now);
        Ok(())
    }

    /// Where the operation stands; not worth a write.
    pub(crate) fn stage(&self, stage: &str) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = SandboxRecord::clone(&self.record.borrow());
        stage.clone_into(&mut record.stage);
        self.record.send_replace(Arc::new(record));
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
        }
    }
}
