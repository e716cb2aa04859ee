//! The sandboxes and containers that exist, with their records, names and events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Container, ContainerId, ContainerName, ContainerPhase, ContainerRecord, EventKind, Name, ObjectId, Records,
    Sandbox, SandboxId, SandboxPhase, SandboxRecord, Selects,
    events::{Event, EventStream, Events, container_events, sandbox_events},
    identifier,
    names::Names,
};
use crate::{Error, clock};

type Objects<I, T> = Mutex<BTreeMap<I, Arc<T>>>;

/// All objects, by id. Every change that is written, and of the lists, goes through it, so that each is counted and
/// announced.
pub(crate) struct Registry {
    pub(crate) records: Records,
    pub(crate) sandbox_names: Names<Name, SandboxId>,
    pub(crate) container_names: Names<ContainerName, ContainerId>,
    events: Events,
    sandboxes: Objects<SandboxId, Sandbox>,
    containers: Objects<ContainerId, Container>,
}

fn lock<I, T>(objects: &Objects<I, T>) -> MutexGuard<'_, BTreeMap<I, Arc<T>>> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn new(records: Records) -> Self {
        Self {
            records,
            sandbox_names: Names::default(),
            container_names: Names::default(),
            events: Events::default(),
            sandboxes: Objects::default(),
            containers: Objects::default(),
        }
    }

    /// Finds a sandbox by its id or an unambiguous prefix of it.
    pub(crate) fn sandbox(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<Arc<Sandbox>, Error> {
        identifier::find(&lock(&self.sandboxes), "pod", id).cloned()
    }

    /// Finds a container by its id or an unambiguous prefix of it.
    pub(crate) fn container(&self, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<Arc<Container>, Error> {
        identifier::find(&lock(&self.containers), "container", id).cloned()
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        lock(&self.sandboxes).values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        lock(&self.containers).values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<Container>> {
        let mut all = self.containers();
        all.retain(|container| container.metadata.sandbox == *sandbox);
        all
    }

    /// Returns the containers that were requested: all but the sandbox containers of pods, which nobody sees.
    pub(crate) fn listed_containers(&self) -> Vec<Arc<Container>> {
        let mut all = self.containers();
        all.retain(|container| !container.is_sandbox_container());
        all
    }

    /// Like [`Self::listed_containers`], of one pod.
    pub(crate) fn listed_containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<Container>> {
        let mut all = self.containers_of(sandbox);
        all.retain(|container| !container.is_sandbox_container());
        all
    }

    pub(crate) fn insert_sandbox(&self, sandbox: Arc<Sandbox>) {
        let mut all = lock(&self.sandboxes);
        all.insert(sandbox.id().clone(), sandbox);
        self.events.changed();
    }

    pub(crate) fn insert_container(&self, container: Arc<Container>) {
        let mut all = lock(&self.containers);
        all.insert(container.id().clone(), container);
        self.events.changed();
    }

    /// Removes a sandbox from the list and releases its name: the last step of its removal.
    pub(crate) fn forget_sandbox(&self, sandbox: &Sandbox) {
        lock(&self.sandboxes).remove(sandbox.id());
        self.sandbox_names.release(&sandbox.config().name, sandbox.id());
        self.events.changed();
        if matches!(sandbox.record().phase, SandboxPhase::Ready | SandboxPhase::Stopped) {
            self.announce_sandbox(EventKind::Deleted, sandbox);
        }
    }

    /// Removes a container from the list and releases its name: the last step of its removal.
    pub(crate) fn forget_container(&self, container: &Container) {
        lock(&self.containers).remove(container.id());
        self.container_names.release(&container.name(), container.id());
        self.events.changed();
        if container.record().phase != ContainerPhase::Creating {
            self.announce_container(EventKind::Deleted, container);
        }
    }

    /// Applies `change` to the record of a sandbox, writes it to the tmpfs, and then publishes it.
    ///
    /// # Errors
    /// The record could not be written; it is not changed then.
    pub(crate) fn update_sandbox(
        &self,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut SandboxRecord),
    ) -> Result<(), Error> {
        self.change_sandbox(sandbox, change, Err)
    }

    /// Like [`Self::update_sandbox`], but only logs a failure to write the record: on a full tmpfs the change has
    /// happened all the same. After a crash, recovery determines it again.
    pub(crate) fn update_sandbox_anyway(&self, sandbox: &Sandbox, change: impl FnOnce(&mut SandboxRecord)) {
        let _always_ok = self.change_sandbox(sandbox, change, |error| {
            tracing::warn!("pod {}: {error}", sandbox.id());
            Ok(())
        });
    }

    fn change_sandbox(
        &self,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut SandboxRecord),
        on_failed_write: impl FnOnce(Error) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _record_lock = sandbox.lock_record();
        let mut record = SandboxRecord::clone(&sandbox.record());
        let before = record.phase;
        change(&mut record);
        let now = record.phase;
        self.records.write_status(sandbox.id(), &record).or_else(on_failed_write)?;
        let changing = self.events.changing();
        sandbox.publish(record);
        drop(changing);
        sandbox_events(before, now).iter().for_each(|kind| self.announce_sandbox(*kind, sandbox));
        Ok(())
    }

    /// Applies `change` to the record of a container. If it returns true, the record is written to the tmpfs and then
    /// published.
    ///
    /// # Errors
    /// The record could not be written; it is published all the same.
    pub(crate) fn update_container(
        &self,
        container: &Container,
        change: impl FnOnce(&mut ContainerRecord) -> bool,
    ) -> Result<(), Error> {
        let _record_lock = container.lock_record();
        let mut record = ContainerRecord::clone(&container.record());
        let before = record.phase;
        if !change(&mut record) {
            return Ok(());
        }
        let written = self.records.write_status(container.id(), &record);
        // A full tmpfs must not hide a state change from the callers that wait for it.
        let record = Arc::new(record);
        let changing = self.events.changing();
        container.publish(Arc::clone(&record));
        drop(changing);
        container_events(before, &record).iter().for_each(|kind| self.announce_container(*kind, container));
        written
    }

    /// Like [`Self::update_container`], but only logs a failure to write the record: on a full tmpfs the change has
    /// happened all the same. After a crash, recovery determines it again.
    pub(crate) fn update_container_anyway(
        &self,
        container: &Container,
        change: impl FnOnce(&mut ContainerRecord) -> bool,
    ) {
        if let Err(error) = self.update_container(container, change) {
            tracing::warn!("container {}: {error}", container.id());
        }
    }

    /// Returns a number that differs after each change of a record or of the lists; see [`Events::changes`].
    pub(crate) fn changes(&self) -> u64 {
        self.events.changes()
    }

    /// Subscribes to events from now on. A slow listener never delays the engine.
    pub(crate) fn subscribe(&self) -> EventStream {
        self.events.subscribe()
    }

    fn announce_sandbox(&self, kind: EventKind, sandbox: &Sandbox) {
        self.events.send(|| self.event(kind, ObjectId::Sandbox(sandbox.id().clone()), sandbox.id(), Some(sandbox)));
    }

    fn announce_container(&self, kind: EventKind, container: &Container) {
        if container.is_sandbox_container() {
            return;
        }
        self.events.send(|| {
            let sandbox = self.sandbox(&container.metadata.sandbox).ok();
            let id = ObjectId::Container(container.id().clone());
            self.event(kind, id, &container.metadata.sandbox, sandbox.as_deref())
        });
    }

    fn event(&self, kind: EventKind, id: ObjectId, sandbox_id: &SandboxId, sandbox: Option<&Sandbox>) -> Event {
        let containers = self.listed_containers_of(sandbox_id);
        let containers = containers.iter().map(|container| container.status()).filter(|status| !status.creating);
        Event { kind, id, at: clock::now(), sandbox: sandbox.map(Sandbox::status), containers: containers.collect() }
    }
}
