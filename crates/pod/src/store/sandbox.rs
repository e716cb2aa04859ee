//! A sandbox in memory: its immutable metadata, a snapshot of its state, and the lock of its slow operations.

mod broken;
mod config;
mod guest_execs;
mod record;
mod status;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use rustix::fd::OwnedFd;
use tokio::sync::watch;

use crate::{
    Error, SandboxId,
    operation::{CreationState, PodCompilations, PodPrograms},
};

pub(crate) use broken::{broken as broken_sandbox, broken_status};
pub use config::{Dns, Name, PidMode, SandboxConfig, SharedMode};
pub(crate) use guest_execs::{GuestExec, GuestExecs};
pub(crate) use record::{SandboxMetadata, SandboxPhase, SandboxRecord};
pub use status::{SandboxState, SandboxStatus};

/// The connections to a virtual machine.
pub(crate) struct VmConnection {
    /// The virtual machine monitor.
    pub(crate) qemu: vm::qemu::Qemu,
    /// The agent in the guest.
    pub(crate) guest: vm::guest::Guest,
}

impl VmConnection {
    /// Closes both for all who use them.
    pub(crate) fn close(&self) {
        vm::vmm::Vmm::close(&self.qemu);
        self.guest.close();
    }

    /// Whether one of them is closed.
    pub(crate) fn is_closed(&self) -> bool {
        vm::vmm::Vmm::is_gone(&self.qemu) || self.guest.is_closed()
    }
}

/// A sandbox: its metadata, its current record, and the locks that protect them.
pub(crate) struct Sandbox {
    pub(crate) metadata: SandboxMetadata,
    /// Held for reading while a container is created in it, for writing by run, stop and remove.
    pub(crate) gate: Arc<tokio::sync::RwLock<()>>,
    pub(crate) creation: CreationState,
    /// Whether NRI plugins were informed of it, so that a new plugin is synchronized with it.
    pub(crate) known_to_plugins: AtomicBool,
    /// The pod's PID namespace, once its init runs.
    pub(crate) pid: tokio::sync::Mutex<Option<OwnedFd>>,
    /// Held while a shim of the pod is started or ended.
    pub(crate) shims: tokio::sync::Mutex<()>,
    /// The connections to its virtual machine, once there are some.
    pub(crate) vm: tokio::sync::Mutex<Option<Arc<VmConnection>>>,
    /// Names of the ports of its virtual machine that carry forwarded connections of this process.
    forwards: Mutex<BTreeSet<String>>,
    /// Held while the size of its virtual machine is changed, until the limits that require it are on record.
    pub(crate) vm_size: Arc<tokio::sync::Mutex<()>>,
    /// Held for writing while its virtual machine is paused for a checkpoint, for reading while its guest is requested
    /// something that a pause would delay, or that adds ports.
    pub(crate) pause: tokio::sync::RwLock<()>,
    /// Commands in its guest.
    pub(crate) guest_execs: GuestExecs,
    /// Held while its sandbox container is created and started.
    pub(crate) sandbox_container: tokio::sync::Mutex<()>,
    /// Permits for programs that create its containers.
    pub(crate) programs: PodPrograms,
    /// Permit for a compilation of its modules.
    pub(crate) compilations: PodCompilations,
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
            known_to_plugins: AtomicBool::new(false),
            pid: tokio::sync::Mutex::new(None),
            shims: tokio::sync::Mutex::default(),
            vm: tokio::sync::Mutex::default(),
            forwards: Mutex::default(),
            vm_size: Arc::default(),
            pause: tokio::sync::RwLock::default(),
            guest_execs: GuestExecs::default(),
            sandbox_container: tokio::sync::Mutex::default(),
            programs: PodPrograms::default(),
            compilations: PodCompilations::default(),
            cancelled: watch::Sender::new(false),
            record: watch::Sender::new(Arc::new(record)),
            record_lock: Mutex::new(()),
        }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.metadata.id
    }

    pub(crate) fn config(&self) -> &SandboxConfig {
        &self.metadata.config
    }

    /// Returns the names of the ports that carry forwarded connections. Held briefly.
    pub(crate) fn forwards(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.forwards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current snapshot of the record.
    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        self.record.borrow().clone()
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
    pub(super) fn publish(&self, record: SandboxRecord) {
        self.record.send_replace(Arc::new(record));
    }

    /// Changes the record. Published, but not written to disk.
    fn edit(&self, change: impl FnOnce(&mut SandboxRecord)) {
        let _record_lock = self.lock_record();
        let mut record = SandboxRecord::clone(&self.record.borrow());
        change(&mut record);
        self.publish(record);
    }

    /// Enters a stage of an operation. Published, but not written to disk.
    pub(crate) fn stage(&self, stage: &str) {
        self.edit(|record| record.enter(stage));
    }

    /// Adds an event to the current stage of the timeline. Published, but not written to disk.
    pub(crate) fn part(&self, name: String, began: u64, ended: u64, failure: &str) {
        self.edit(|record| record.timeline.part(name, began, ended, failure));
    }

    /// Marks the current stage as failed; it may be retried. Published, but not written to disk.
    pub(crate) fn failed(&self, why: &str) {
        self.edit(|record| {
            record.timeline.fail(why);
            record.stage = format!("{}: {why}", record.stage.split(": ").next().unwrap_or_default());
        });
    }

    /// Adds the calls of network plugins for this sandbox to its timeline.
    pub(crate) fn add_plugin_calls(&self, network: &network::Network) {
        let calls = network.calls(self.id().as_str());
        let last = self.record().timeline.stages().iter().filter(|stage| stage.part).map(|stage| stage.began).max();
        for call in calls.into_iter().filter(|call| last.is_none_or(|last| call.began > last)) {
            let took = call.took.map_or(0, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            let name = format!("CNI plugin {} {}", call.plugin, call.command);
            self.part(name, call.began, call.began.saturating_add(took), &call.failure);
        }
    }

    /// Aborts its creation; has no effect on a sandbox that was created.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Fails if its creation must be aborted.
    pub(crate) fn check_cancelled(&self) -> Result<(), Error> {
        match self.is_cancelled() {
            true => Err(Error::state("it was stopped while it was being created")),
            false => Ok(()),
        }
    }

    /// Runs `work`, which may be dropped at any point, unless its creation is aborted.
    pub(crate) async fn unless_cancelled<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.race(work, "it was stopped while it was being created").await
    }

    /// Runs `work`, which may be dropped at any point, unless the pod is stopped.
    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.race(work, "the pod is being stopped").await
    }

    async fn race<T, E: From<Error>>(&self, work: impl Future<Output = Result<T, E>>, stopped: &str) -> Result<T, E> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(Error::state(stopped).into()),
            outcome = work => outcome,
        }
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

    /// Whether it is being restored from a checkpoint, or that was interrupted: nothing of it has run.
    pub(crate) fn is_restoring(&self) -> bool {
        let record = self.record.borrow();
        self.metadata.restored && !record.restored && record.broken.is_none() && record.phase.is_early()
    }

    /// Reports whether the daemon resolves the names of its networks.
    pub(crate) fn has_resolver(&self) -> bool {
        let config = self.config();
        let is_requested = config.named.networks.as_ref().is_some_and(|networks| !networks.is_empty());
        config.network == SharedMode::Pod && (is_requested || self.record.borrow().has_resolver)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.record.borrow().phase == SandboxPhase::Ready
    }

    pub(crate) fn status(&self) -> SandboxStatus {
        let record = self.record();
        // The record keeps the addresses of a stopped pod for the plugins to which its removal is reported.
        let attachment = record.attachment.as_ref().filter(|_| record.phase != SandboxPhase::Stopped);
        SandboxStatus {
            id: self.metadata.id.clone(),
            config: Arc::clone(&self.metadata.config),
            state: if record.phase == SandboxPhase::Ready { SandboxState::Ready } else { SandboxState::NotReady },
            created_at: self.metadata.created_at,
            ips: attachment.map(|a| a.ips.clone()).unwrap_or_default(),
            netns: record.netns.clone(),
            stage: record.stage.clone(),
            creating: self.is_creating(),
        }
    }
}
