use std::rc::Rc;

use container::Target;
use monitor_api::{Attachments, Exec, Failure, FailureKind, Role};
use seccomp::Program;

use super::{Answer, create::stdio};
use crate::{
    child::{Child, Stage},
    clock,
    command::{Command, CommandStage, DEADLINE, Held},
    connection::Asked,
    failure::{no_container, of_container, state, system},
    monitor::Monitor,
    process::{has_seccomp, is_alive, is_ending, oom_score_adj},
    programs::Filter,
    removal::Then,
    timer::Timer,
};

impl Monitor {
    /// Runs a command in a container; answered when execve succeeded or failed.
    pub(super) fn exec(&mut self, asked: Asked, exec: Exec, attachments: &mut Attachments) -> Answer {
        let Exec { exec: id, container, mut process } = exec;
        if self.find_command(&id).is_some() {
            return Err(Failure::new(FailureKind::AlreadyExists, format!("command {id} exists already")));
        }
        let attached = attachments.take(Role::Seccomp).map(|file| self.programs.read(&file)).transpose()?;
        let serial = self.find(&container).ok_or_else(|| no_container("exec in", &container))?;
        if let Some(why) = self.too_many_commands(&container) {
            return Err(state("exec in", &container, &why));
        }
        let child = &self.containers[&serial];
        let (Stage::Running, Some(pidfd), Some(group)) = (&child.stage, child.pidfd(), child.group()) else {
            return Err(state("exec in", &container, "it is not running"));
        };
        let filter = filter(child, attached)?;
        // A command inherits from the monitor, whom the OOM killer spares.
        if process.oom_score_adj.is_none() {
            process.oom_score_adj = oom_score_adj(child.pid).or(Some(self.inherit.oom_score_adj));
        }
        self.inherit.restore_files(&mut process);
        let what = format!("exec in container {container}");
        let group = group.exec_group(&id).map_err(|e| system(&what, e))?;
        // The CRI has neither personality nor memory policy.
        let target = Target { user_namespace: child.user_namespace, ..pidfd.into() };
        let filter = filter.as_deref().map(Into::into);
        let cloned = container::exec(group, target, &process, stdio(attachments), filter);
        self.terminals.cloned();
        let nascent = match cloned {
            Ok(nascent) => nascent,
            Err(error) => {
                self.remove_exec_group(&container, &id);
                return Err(self.exec_failure(&container, of_container(&what, &error)));
            }
        };
        let serial = self.next_serial();
        let (terminal, warnings) = (None, Vec::new());
        let stage = CommandStage::Setting(asked);
        let deadline = clock::monotonic() + DEADLINE;
        self.timers.at(deadline, Timer::Command(serial));
        let held = Held::Process(Box::new(nascent));
        self.commands
            .insert(serial, Command { id, container, held, terminal, warnings, stage, deadline, failure: None });
        self.watch(serial);
        Ok(None)
    }

    /// What went wrong because the container ended meanwhile is no fault of anybody's.
    pub(crate) fn exec_failure(&self, container: &str, failure: Failure) -> Failure {
        let child = self.find(container).map(|serial| &self.containers[&serial]);
        let lives = |child: &Child| child.pidfd().is_some_and(is_alive) && !is_ending(child.pid);
        if child.is_some_and(lives) || failure.kind != FailureKind::System {
            return failure;
        }
        state("exec in", container, &format!("it ended meanwhile ({})", failure.message))
    }

    /// Where the container put something into it before it could be used.
    fn remove_exec_group(&mut self, container: &str, id: &str) {
        let group = self.find(container).and_then(|serial| self.containers[&serial].group()?.open_exec_group(id).ok());
        if let Some(group) = group {
            self.remove_group(group, Then::Nothing);
        }
    }
}

/// A command is bound by its container's filter. A container of a dead monitor has one that only the daemon knows.
fn filter(child: &Child, attached: Option<Rc<Program>>) -> Result<Option<Rc<Program>>, Failure> {
    match (attached, &child.filter) {
        (Some(program), _) => Ok(Some(program)),
        (None, Filter::Known(program)) => Ok(program.clone()),
        (None, Filter::Unknown) if has_seccomp(child.pid) == Some(false) => Ok(None),
        (None, Filter::Unknown) => {
            let why = "it runs under a seccomp program that this monitor was not given; attach it to the request";
            Err(state("exec in", &child.id, why))
        }
    }
}
