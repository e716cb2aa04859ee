//! Children on their way to execve.

use std::time::Duration;

use container::{Nascent, Progress, hooks::Moment};
use monitor_api::{Attachments, Created, Failure, FailureKind, PodInitStarted, Reply, Role};
use oci::NamespaceType;
use rustix::{fd::OwnedFd, process::Signal};

use crate::{
    child::{Child, Stage},
    command::ANSWER_AFTER,
    connection::Asked,
    failure::{of_container, system},
    hooks::{self, After},
    monitor::Monitor,
    process::start_time,
    removal::Then,
    stream::StreamKind,
    terminal::take_unread_terminal,
    timer::Timer,
};

/// Longest that a container's child may take to be set up, and again from its start to execve, beside the time of
/// hooks.
pub(crate) const SETUP_DEADLINE: Duration = Duration::from_secs(60);

impl Monitor {
    /// A child that is not at execve yet may have something to say.
    pub(crate) fn advance(&mut self, serial: u64) {
        if self.makers.contains_key(&serial) {
            return self.advance_maker(serial);
        }
        if self.runners.contains_key(&serial) {
            return self.advance_runner(serial);
        }
        if self.commands.contains_key(&serial) {
            return self.advance_command(serial);
        }
        loop {
            // What a child that failed still sends changes nothing: it is killed, and answered when it is reaped.
            let advancing = |child: &&mut Child| !matches!(child.stage, Stage::Failing(..));
            let child = self.containers.get_mut(&serial).filter(advancing);
            let Some(nascent) = child.and_then(Child::nascent_mut) else { return };
            let advanced = nascent.advance();
            self.follow_pid(serial);
            match advanced {
                Ok(Progress::Pending) => return,
                Ok(Progress::Ready { terminal }) => self.set_up(serial, terminal),
                Ok(Progress::Executed) => return self.executed(serial),
                Ok(Progress::NamespacesMade) => self.hooks_of_creation(serial),
                Err(error) => return self.failed(serial, &error),
            }
        }
    }

    /// Its intermediate process may have handed it over.
    fn follow_pid(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Some(pid) = child.nascent().map(|nascent| nascent.pid).filter(|pid| *pid != child.pid) else { return };
        child.pid = pid;
        child.start_time = start_time(pid).unwrap_or(0);
    }

    /// A container should be set up by now.
    pub(crate) fn set_up_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        if !matches!(child.stage, Stage::Setting(..)) {
            return;
        }
        if self.hooks_run_for(serial) {
            // These have their own timeouts, and then the child has its time again.
            let time = SETUP_DEADLINE + child.hooks_time;
            return self.timers.after(time, Timer::SetUp(serial));
        }
        let error = late("it was not set up", SETUP_DEADLINE + child.hooks_time);
        self.failed(serial, &error);
    }

    /// A started container should have come to execve by now.
    pub(crate) fn execute_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        if matches!(child.stage, Stage::Starting(..)) {
            let error = late("its process did not come to execve", SETUP_DEADLINE + child.hooks_time);
            kill(child);
            self.failed(serial, &error);
        }
    }

    /// One that was killed was not reaped in time: the caller that waits is answered, its record stays until it is.
    pub(crate) fn answer_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Stage::Failing(_, asked, failure) = &mut child.stage else { return };
        if let Some(asked) = asked.take() {
            let failure = failure.clone();
            self.reply(asked, Err(failure));
        }
    }

    /// Its namespaces are made, and it waits until the hooks of that moment have run.
    fn hooks_of_creation(&mut self, serial: u64) {
        let setting = |child: &&Child| matches!(child.stage, Stage::Setting(..));
        let Some(child) = self.containers.get(&serial).filter(setting) else { return };
        let (held, pid) = (child.hooks.clone(), child.pid);
        match self.run_hooks(held.as_deref(), Moment::Create, pid, After::Create(serial)) {
            Ok(()) => {}
            Err((_, failure)) => self.created_with_hooks(serial, failure.map(|failure| failure.message)),
        }
    }

    /// They have run.
    pub(crate) fn created_with_hooks(&mut self, serial: u64, failed: Option<String>) {
        let setting = |child: &&mut Child| matches!(child.stage, Stage::Setting(..));
        let Some(child) = self.containers.get_mut(&serial).filter(setting) else { return };
        let went = match (failed, child.nascent_mut()) {
            (Some(why), _) => Err(hooks::failure(&child.id, &why)),
            (None, Some(nascent)) => nascent.go_on(),
            (None, None) => return,
        };
        if let Err(error) = went {
            self.failed(serial, &error);
        }
    }

    fn set_up(&mut self, serial: u64, terminal: Option<OwnedFd>) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let (nascent, asked) = match child.change() {
            Stage::Setting(nascent, asked) => (nascent, asked),
            other => {
                child.stage = other;
                return drop(terminal.map(|master| self.terminals.closing.of(&child.sandbox).own(master)));
            }
        };
        if let Some(terminal) = terminal
            && let Err(error) =
                child.output.add(StreamKind::Stdout, terminal, &self.terminals.closing.of(&child.sandbox))
        {
            eprintln!("pinmon: terminal of container {}: {error}", child.id);
        }
        if child.pod_init {
            return self.let_go(serial, nascent, asked);
        }
        match created(child, &nascent) {
            Ok(answer) => {
                child.stage = Stage::Created(nascent);
                self.hand_over(serial);
                self.reply(asked, Ok(answer));
            }
            // The daemon would not know of it.
            Err(failure) => self.fail(serial, nascent, asked, failure),
        }
    }

    /// Sends the start byte.
    pub(crate) fn let_go(&mut self, serial: u64, mut nascent: container::Nascent, asked: Asked) {
        let started = nascent.start();
        let Some(child) = self.containers.get_mut(&serial) else { return };
        self.timers.after(SETUP_DEADLINE + child.hooks_time, Timer::Execute(serial));
        child.stage = Stage::Starting(nascent, asked);
        if let Err(error) = started {
            self.failed(serial, &error);
        }
    }

    fn executed(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let (nascent, asked) = match child.change() {
            Stage::Starting(nascent, asked) => (nascent, asked),
            other => {
                child.stage = other;
                return;
            }
        };
        self.epoll.forget(nascent.sync());
        child.keep(nascent);
        child.stage = Stage::Running;
        if child.pod_init {
            let answer = pod_init_started(child);
            self.reply(asked, answer);
        } else {
            let (held, pid) = (child.hooks.clone(), child.pid);
            if let Err((_, failure)) = self.run_hooks(held.as_deref(), Moment::Started, pid, After::Started(asked)) {
                if let Some(failure) = failure {
                    eprintln!("pinmon: {}", failure.message);
                }
                self.reply(asked, Ok((Reply::Done, Attachments::new())));
            }
        }
        // Its parent may be another process: a created one that was adopted.
        self.ended_elsewhere(serial, 0);
    }

    fn failed(&mut self, serial: u64, error: &container::Error) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        match child.change() {
            Stage::Setting(nascent, asked) => {
                let failure = of_container(&format!("create container {}", child.id), error);
                self.fail(serial, nascent, asked, failure);
            }
            Stage::Starting(nascent, asked) => {
                let failure = of_container(&format!("start container {}", child.id), error);
                if child.pod_init {
                    self.fail(serial, nascent, asked, failure);
                } else {
                    self.epoll.forget(nascent.sync());
                    child.keep(nascent);
                    child.stage = Stage::Running;
                    self.reply(asked, Err(failure));
                }
            }
            // A waiting one that ended: its end is reported when it is reaped.
            Stage::Created(nascent) => {
                self.epoll.forget(nascent.sync());
                child.stage = Stage::Created(nascent);
            }
            other => child.stage = other,
        }
    }

    /// Kills a container whose poststart hook failed (runtime.md, "Lifecycle", step 9); its end is reported as any.
    pub(crate) fn stop_started(&self, container: &str) {
        if let Some(child) = self.find(container).and_then(|serial| self.containers.get(&serial)) {
            kill(child);
        }
    }

    /// Kills a child; the caller that waits is answered when it was reaped, or soon.
    fn fail(&mut self, serial: u64, nascent: Nascent, asked: Asked, failure: Failure) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        self.epoll.forget(nascent.sync());
        child.stage = Stage::Failing(nascent, Some(asked), failure);
        kill(child);
        self.timers.after(ANSWER_AFTER, Timer::Answer(serial));
        self.reap_failed(serial);
    }

    /// A child that never came to be was reaped: nothing of it stays.
    pub(crate) fn setup_ended(&mut self, serial: u64) {
        let Some(mut child) = self.containers.remove(&serial) else { return };
        let (nascent, asked, failure) = match child.change() {
            Stage::Failing(nascent, asked, failure) => (nascent, asked, failure),
            Stage::Setting(nascent, asked) => {
                self.epoll.forget(nascent.sync());
                let message = format!("create container {}: its process ended before it was set up", child.id);
                (nascent, Some(asked), Failure::new(FailureKind::System, message))
            }
            _ => return,
        };
        child.output.close(false);
        let mut nascent = nascent;
        take_unread_terminal(&self.terminals.closing.of(&child.sandbox), Some(&mut nascent));
        child.keep(nascent);
        self.give_up_hooks(serial);
        let mut answers: Vec<_> = asked.map(|asked| (asked, Err(failure))).into_iter().collect();
        answers.extend(std::mem::take(&mut child.deletes).into_iter().map(|asked| (asked, Ok(()))));
        match child.group.take() {
            Some(group) => {
                // It may hold one that an intermediate process could not hand over.
                let _ = group.kill();
                self.remove_group(group, Then::Answer(child.hooks, answers));
            }
            None => self.stop_with_hooks(child.hooks.as_deref(), answers),
        }
    }
}

/// Kills what was made of a container so far; what is frozen, too.
fn kill(child: &Child) {
    if let Some(group) = child.group()
        && let Err(error) = group.kill()
    {
        eprintln!("pinmon: kill container {}: {error}", child.id);
    }
    if let Some(pidfd) = child.pidfd() {
        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
    }
}

fn late(what: &str, after: Duration) -> container::Error {
    let seconds = after.as_secs();
    let message = format!(
        "timed out: {what} in {seconds} s and was killed; is its cgroup frozen or out of CPU time, or a volume's server gone?"
    );
    container::Error { kind: container::ErrorKind::System, message }
}

fn created(child: &Child, nascent: &container::Nascent) -> Result<(Reply, Attachments), Failure> {
    let duplicate = |what: &str, fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().map_err(|e| system(format!("create container {}: duplicate its {what}", child.id), e))
    };
    let mut attachments = Attachments::new()
        .with(Role::Pidfd, duplicate("pidfd", std::os::fd::AsFd::as_fd(&nascent.pidfd))?)
        .with(Role::Sync, duplicate("start gate", nascent.sync())?);
    if let Some(terminal) = child.output.terminal() {
        attachments.push(Role::Terminal, duplicate("terminal", std::os::fd::AsFd::as_fd(terminal))?);
    }
    let created =
        Created { pid: child.pid.unsigned_abs(), start_time: child.start_time, warnings: child.warnings.clone() };
    Ok((Reply::Created(created), attachments))
}

fn pod_init_started(child: &Child) -> Result<(Reply, Attachments), Failure> {
    let what = |step: &str| format!("start init of pod {}: {step}", child.id);
    let pidfd = child.pidfd.as_ref().ok_or_else(|| Failure::new(FailureKind::System, what("it has no pidfd")))?;
    let path = format!("/proc/{}/ns/pid", child.pid);
    let namespace = std::fs::File::open(&path).map_err(|e| system(what(&format!("open {path}")), e))?;
    let attachments = Attachments::new()
        .with(Role::Pidfd, pidfd.try_clone().map_err(|e| system(what("duplicate its pidfd"), e))?)
        .with(Role::Namespace(NamespaceType::Pid), namespace.into());
    let started = PodInitStarted { pid: child.pid.unsigned_abs(), start_time: start_time(child.pid).unwrap_or(0) };
    Ok((Reply::PodInitStarted(started), attachments))
}
