//! Removal of containers.

use super::Monitor;
use crate::{
    containers::Stage,
    failure,
    removal::{AfterRemoval, RemovalEnd},
};

impl Monitor {
    /// Removes the cgroup and the record of an exited container, and answers its `Delete`s.
    pub(crate) fn try_remove(&mut self, serial: u64) {
        let Some(container) = self.containers.get_mut(serial) else { return };
        if !matches!(container.stage, Stage::Exited(_)) || container.deletes.is_empty() || container.removing {
            return;
        }
        container.removing = true;
        if let Some(group) = &container.group
            && !group.is_empty().unwrap_or(true)
        {
            let _ = group.kill();
        }
        let has_runtime = container.description.runtime.is_some() && !container.runtime_deleted;
        if has_runtime && self.delete_with_runtime(serial, false) {
            return;
        }
        let Some(container) = self.containers.get_mut(serial) else { return };
        let Some(group) = container.group.take() else { return self.forget_container(serial) };
        self.remove_group(group, AfterRemoval::Forget(serial));
    }

    /// Removes a cgroup whose processes exited or were killed. An empty one is removed immediately.
    pub(crate) fn remove_group(&mut self, group: cgroup::Group, then: AfterRemoval) {
        let end = self.removals.start(group, then, &mut self.services);
        self.removal_ended(end);
    }

    /// Performs a step of the next removal that is ready.
    pub(crate) fn remove_some(&mut self) {
        let end = self.removals.step_next(&mut self.services);
        self.removal_ended(end);
    }

    /// Continues a removal after its wait.
    pub(crate) fn removal_due(&mut self, serial: u64) {
        if !self.removals.resume(serial) {
            // Timer of a previous program, which names the container.
            self.try_remove(serial);
        }
    }

    fn removal_ended(&mut self, end: Option<RemovalEnd>) {
        match end {
            None | Some(RemovalEnd::Removed(AfterRemoval::Nothing)) => {}
            Some(RemovalEnd::Removed(AfterRemoval::Forget(serial))) => self.forget_container(serial),
            Some(RemovalEnd::Removed(AfterRemoval::Answer(hooks, answers))) => {
                self.stop_with_hooks(hooks.as_deref(), answers);
            }
            Some(RemovalEnd::Failed { container, group, why }) => {
                let Some(container) = self.containers.get_mut(container) else { return };
                (container.group, container.removing) = (Some(group), false);
                let failure = failure::state("delete", &container.description.id, &why);
                for request_id in std::mem::take(&mut container.deletes) {
                    self.services.reply(request_id, Err(failure.clone()));
                }
            }
        }
    }

    /// Forgets a container that has no cgroup any longer.
    fn forget_container(&mut self, serial: u64) {
        let Some(container) = self.containers.remove(serial) else { return };
        let id = &container.description.id;
        self.oom_kills.remove(&self.node.trees, serial, &container.description.cgroup);
        self.execs.forget_container(id);
        if let Some(pidfd) = &container.pidfd {
            self.services.epoll.forget(pidfd);
        }
        self.outputs.journals.forget(id);
        self.outputs.release(serial, &mut self.services);
        let answers = container.deletes.iter().map(|request_id| (*request_id, Ok(()))).collect();
        self.stop_with_hooks(container.description.hooks.as_deref(), answers);
    }
}
