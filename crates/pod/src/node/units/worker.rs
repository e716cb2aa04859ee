//! The thread that passes the queue to systemd.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, PoisonError},
    thread,
    time::Duration,
};

use cgroup::{
    Group, GroupPath, Limits,
    systemd::{Connection, LoadedUnit, Unit, expand_slice},
};
use rustix::{io::Errno, process::Pid};

use super::{
    Registration, Shared, UnitOwner,
    queue::{Audit, Entry},
};
use crate::{node::cgroup_names, process};

/// Delay before another attempt to reach systemd, at first and after many failures.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

struct Worker {
    shared: Arc<Shared>,
    owner: UnitOwner,
}

pub(super) fn start(shared: Arc<Shared>, owner: UnitOwner) -> io::Result<()> {
    let worker = Worker { shared, owner };
    thread::Builder::new().name("units".into()).spawn(move || worker.run()).map(drop)
}

impl Worker {
    /// Passes entries on until the engine is closed. A connection is used for the entries that are pending, and closed
    /// then: it would receive all signals of systemd. So a systemd that was restarted needs no special treatment.
    fn run(&self) {
        let mut retry = RETRY_MIN;
        while self.wait() {
            let outcome = Connection::open().and_then(|mut connection| self.drain(&mut connection));
            match outcome {
                Ok(()) => {
                    if retry > RETRY_MIN {
                        tracing::info!("systemd answers again");
                    }
                    retry = RETRY_MIN;
                }
                Err(error) => {
                    tracing::warn!(
                        "register cgroups with systemd: {error}; retrying in {retry:?}, pods are not affected"
                    );
                    self.pause(retry);
                    retry = (2 * retry).min(RETRY_MAX);
                }
            }
        }
    }

    /// Waits for an entry. Returns false when the engine is closed.
    fn wait(&self) -> bool {
        let mut queue = self.shared.lock();
        while queue.is_idle() && !queue.closed {
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        !queue.closed
    }

    /// Waits for a time, or until the engine is closed.
    fn pause(&self, time: Duration) {
        let queue = self.shared.lock();
        drop(self.shared.changed.wait_timeout_while(queue, time, |queue| !queue.closed));
    }

    /// Processes all pending entries. An error means that the connection cannot be used anymore.
    fn drain(&self, connection: &mut Connection) -> Result<(), cgroup::Error> {
        loop {
            let mut queue = self.shared.lock();
            let (entry, audit) = match queue.pop() {
                Some(entry) => (Some(entry), None),
                None => (None, queue.audit.take()),
            };
            queue.is_processing = entry.is_some() || audit.is_some();
            drop(queue);
            let outcome = match (&entry, &audit) {
                (Some(entry), _) => self.pass_on(connection, entry),
                (None, Some(audit)) => self.audit(connection, audit),
                (None, None) => {
                    self.shared.changed.notify_all();
                    return Ok(());
                }
            };
            let Err(error) = outcome else { continue };
            if connection.is_usable() {
                tracing::warn!("register cgroups with systemd: {error}");
                continue;
            }
            let mut queue = self.shared.lock();
            queue.is_processing = false;
            match (entry, audit) {
                (Some(entry), _) => queue.put_back(entry),
                (None, audit) => queue.audit = queue.audit.take().or(audit),
            }
            return Err(error);
        }
    }

    fn pass_on(&self, connection: &mut Connection, entry: &Entry) -> Result<(), cgroup::Error> {
        let Some(unit) = Unit::of_group(entry.path(), &self.owner.description) else { return Ok(()) };
        match entry {
            Entry::Register(registration) => self.register(connection, &unit, registration),
            Entry::Update(path, resources) => {
                match connection.update(&unit, &self.shared.trees, &Limits::from_spec(resources)?) {
                    // systemd removes a scope after its last process has exited.
                    Err(_) if connection.is_usable() && !self.has_process(path) => Ok(()),
                    outcome => outcome.and_then(|()| self.write_limits(path, resources)),
                }
            }
            Entry::Stop(_) => {
                connection.stop(&unit)?;
                self.shared.lock().forget(unit.name());
                Ok(())
            }
            Entry::StopEmpty(path) => match self.shared.trees.has_children(path) {
                true => Ok(()),
                false => {
                    connection.stop(&unit)?;
                    // systemd does not remove the group of a slice that it does not know.
                    self.shared.trees.remove_empty_parents(&path.join("pod")?, path.parent().as_ref());
                    Ok(())
                }
            },
        }
    }

    fn register(
        &self,
        connection: &mut Connection,
        unit: &Unit,
        registration: &Registration,
    ) -> Result<(), cgroup::Error> {
        // A pid may be used again by another process, which systemd would move into the scope.
        let is_alive = || registration.process.is_none_or(|(pid, started)| process::find(pid, started).is_some());
        let exists = || self.shared.trees.contains(&registration.path);
        if !is_alive() || !exists() {
            return Ok(());
        }
        let pid = registration.process.and_then(|(pid, _)| Pid::from_raw(pid.cast_signed()));
        let limits = Limits::from_spec(&registration.resources)?;
        match connection.register(unit, &self.shared.trees, pid, &limits) {
            // A container that has exited in the meantime needs no unit.
            Err(_) if connection.is_usable() && !is_alive() => return Ok(()),
            outcome => outcome?,
        }
        self.write_limits(&registration.path, &registration.resources)
    }

    /// Writes all limits of a group: systemd has overwritten those that it supports, with rounded values. Device rules
    /// are in effect since the creation.
    fn write_limits(&self, path: &GroupPath, resources: &oci::Resources) -> Result<(), cgroup::Error> {
        // A pending entry has newer limits, or removes the group.
        if self.shared.lock().is_pending(path.name()) {
            return Ok(());
        }
        let Ok(group) = Group::open(&self.shared.trees, path) else { return Ok(()) };
        let limits = Limits::from_spec(&oci::Resources { devices: Vec::new(), ..resources.clone() })?;
        match group.update(&limits) {
            // The group is being removed, or was.
            Err(error) if error.errno() == Some(Errno::NODEV) || !self.shared.trees.contains(path) => Ok(()),
            outcome => outcome,
        }
    }

    fn audit(&self, connection: &mut Connection, audit: &Audit) -> Result<(), cgroup::Error> {
        let Audit { listing, wanted } = audit;
        let mut loaded = Vec::new();
        for prefix in cgroup_names::SCOPE_PREFIXES {
            loaded.extend(connection.list(&format!("{prefix}*.scope"))?);
        }
        loaded.extend(connection.list(&self.owner.pod_slices)?);
        loaded.retain(|unit| unit.description == self.owner.description);
        let names: HashSet<&str> = loaded.iter().map(|unit| unit.name.as_str()).collect();
        for registration in wanted.iter().filter(|registration| !names.contains(registration.path.name())) {
            let outcome = self.pass_on(connection, &Entry::Register(registration.clone()));
            if outcome.is_err() && !connection.is_usable() {
                return outcome;
            }
        }
        let owned: HashSet<&str> = wanted.iter().map(|registration| registration.path.name()).collect();
        for unit in loaded.iter().filter(|unit| !owned.contains(unit.name.as_str())) {
            if self.is_leftover(connection, unit, *listing)? {
                self.stop_leftover(connection, unit)?;
            }
        }
        Ok(())
    }

    /// Stops a unit. If systemd refuses that, the next audit tries again, and this one continues.
    fn stop_leftover(&self, connection: &mut Connection, unit: &LoadedUnit) -> Result<(), cgroup::Error> {
        match connection.stop(&unit.unit()) {
            Ok(()) => self.shared.lock().forget(&unit.name),
            Err(error) if connection.is_usable() => tracing::warn!("stop a unit without an owner: {error}"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reports whether no object needs a unit: it was left over by an earlier daemon, or could not be stopped when its
    /// object was removed.
    fn is_leftover(&self, connection: &mut Connection, unit: &LoadedUnit, listing: u64) -> Result<bool, cgroup::Error> {
        if cgroup_names::owner_of_unit(&unit.name).is_none() || self.shared.lock().is_newer_than(&unit.name, listing) {
            return Ok(false);
        }
        // A slice may belong to a pod whose record cannot be read: systemd would end the containers in it.
        if unit.name.ends_with(".slice") {
            return Ok(expand_slice(&unit.name).map_or(true, |path| !self.has_process(&path)));
        }
        let group = connection.group_of_scope(unit)?;
        Ok(group.is_none_or(|path| !self.has_process(&path)))
    }

    /// Reports whether a group exists and is not empty.
    fn has_process(&self, path: &GroupPath) -> bool {
        Group::open(&self.shared.trees, path).is_ok_and(|group| !group.is_empty().unwrap_or(false))
    }
}
