use std::rc::Rc;

use container::Target;
use monitor_api::{Attachments, Exec, Failure, FailureKind, Role};
use seccomp::Program;

use super::{Answer, create::stdio};
use crate::{
    child::{Child, Stage},
    clock,
    connection::RequestId,
    exec::{DEADLINE, ExecHandle, ExecSession, ExecStage},
    failure::{no_container, of_container, state, system},
    monitor::Monitor,
    process::{has_seccomp, is_alive, is_ending, oom_score_adj},
    programs::Filter,
    removal::AfterRemoval,
    timer::Timer,
};

impl Monitor {
    /// Executes a process in a container. Answered when execve succeeded or failed.
    pub(super) fn exec(&mut self, request_id: RequestId, exec: Exec, attachments: &mut Attachments) -> Answer {
        let Exec { exec: id, container, mut process } = exec;
        if self.find_exec(&id).is_some() {
            return Err(Failure::new(FailureKind::AlreadyExists, format!("exec {id} already exists")));
        }
        let attached = attachments.take(Role::Seccomp).map(|file| self.programs.read(&file)).transpose()?;
        let serial = self.find(&container).ok_or_else(|| no_container("exec in", &container))?;
        if let Some(why) = self.exec_limit(&container) {
            return Err(state("exec in", &container, &why));
        }
        let child = &self.containers[&serial];
        let (Stage::Running, Some(pidfd), Some(group)) = (&child.stage, child.pidfd(), child.group()) else {
            return Err(state("exec in", &container, "the container is not running"));
        };
        let filter = filter(child, attached)?;
        // Otherwise it would inherit the value of the monitor, which is protected from the OOM killer.
        if process.oom_score_adj.is_none() {
            process.oom_score_adj = oom_score_adj(child.pid).or(Some(self.inherited_limits.oom_score_adj));
        }
        self.inherited_limits.restore_open_files(&mut process);
        let operation = format!("exec in container {container}");
        let group = group.exec_group(&id).map_err(|e| system(&operation, e))?;
        // The CRI supports neither personality nor memory policy.
        let target = Target { user_namespace: child.user_namespace, ..pidfd.into() };
        let filter = filter.as_deref().map(Into::into);
        let cloned = container::exec(group, target, &process, stdio(attachments), filter);
        self.terminals.cloned();
        let setup = match cloned {
            Ok(setup) => setup,
            Err(error) => {
                self.remove_exec_group(&container, &id);
                return Err(self.exec_failure(&container, of_container(&operation, &error)));
            }
        };
        let serial = self.next_serial();
        let (terminal, warnings) = (None, Vec::new());
        let stage = ExecStage::Starting(request_id);
        let deadline = clock::monotonic() + DEADLINE;
        self.timers.at(deadline, Timer::Command(serial));
        let handle = ExecHandle::Process(Box::new(setup));
        self.execs
            .insert(serial, ExecSession { id, container, handle, terminal, warnings, stage, deadline, failure: None });
        self.watch(serial);
        Ok(None)
    }

    /// Returns the failure of an exec; a system error is reported as an exit of the container if the container is
    /// exiting.
    pub(crate) fn exec_failure(&self, container: &str, failure: Failure) -> Failure {
        let child = self.find(container).map(|serial| &self.containers[&serial]);
        let is_alive_child = |child: &Child| child.pidfd().is_some_and(is_alive) && !is_ending(child.pid);
        if child.is_some_and(is_alive_child) || failure.kind != FailureKind::System {
            return failure;
        }
        state("exec in", container, &format!("the container exited in the meantime ({})", failure.message))
    }

    /// Removes the cgroup of an exec that failed because the container created cgroups in it first.
    fn remove_exec_group(&mut self, container: &str, id: &str) {
        let group = self.find(container).and_then(|serial| self.containers[&serial].group()?.open_exec_group(id).ok());
        if let Some(group) = group {
            self.remove_group(group, AfterRemoval::Nothing);
        }
    }
}

/// Returns the seccomp program for an exec: the attached one, or that of the container. The program of an adopted
/// container is known only to the daemon.
fn filter(child: &Child, attached: Option<Rc<Program>>) -> Result<Option<Rc<Program>>, Failure> {
    match (attached, &child.filter) {
        (Some(program), _) => Ok(Some(program)),
        (None, Filter::Known(program)) => Ok(program.clone()),
        (None, Filter::Unknown) if has_seccomp(child.pid) == Some(false) => Ok(None),
        (None, Filter::Unknown) => {
            let why = "it has a seccomp program that this monitor does not have; attach it to the request";
            Err(state("exec in", &child.id, why))
        }
    }
}
