//! Children on their way to execve.

use container::{Progress, hooks::Moment};
use monitor_api::{Attachments, Created, Failure, FailureKind, PodInitStarted, Reply, Role};
use oci::NamespaceType;
use rustix::{fd::OwnedFd, process::Signal};

use crate::{
    child::{Child, Stage},
    connection::Asked,
    failure::{of_container, system},
    hooks::{self, After},
    monitor::Monitor,
    process::start_time,
    stream::StreamKind,
};

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
            let Some(nascent) = self.containers.get_mut(&serial).and_then(Child::nascent_mut) else { return };
            match nascent.advance() {
                Ok(Progress::Pending) => return,
                Ok(Progress::Ready { terminal }) => self.set_up(serial, terminal),
                Ok(Progress::Executed) => return self.executed(serial),
                Ok(Progress::NamespacesMade) => self.hooks_of_creation(serial),
                Err(error) => return self.failed(serial, &error),
            }
        }
    }

    /// Its namespaces are made, and it waits until the hooks of that moment have run.
    fn hooks_of_creation(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        let (held, pid) = (child.hooks.clone(), child.pid);
        match self.run_hooks(held.as_deref(), Moment::Create, pid, After::Create(serial)) {
            Ok(()) => {}
            Err((_, failure)) => self.created_with_hooks(serial, failure.map(|failure| failure.message)),
        }
    }

    /// They have run.
    pub(crate) fn created_with_hooks(&mut self, serial: u64, failed: Option<String>) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
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
        let Stage::Setting(nascent, asked) = child.change() else { return };
        if let Some(terminal) = terminal
            && let Err(error) = child.output.add(StreamKind::Stdout, terminal)
        {
            eprintln!("pinmon: terminal of container {}: {error}", child.id);
        }
        if let Err(error) = child.output.watch(&self.epoll, serial) {
            eprintln!("pinmon: watch the output of container {}: {error}", child.id);
        }
        if child.pod_init {
            return self.let_go(serial, nascent, asked);
        }
        let answer = created(child, &nascent);
        child.stage = Stage::Created(nascent);
        self.reply(asked, answer);
    }

    /// Sends the start byte.
    pub(crate) fn let_go(&mut self, serial: u64, mut nascent: container::Nascent, asked: Asked) {
        let started = nascent.start();
        let Some(child) = self.containers.get_mut(&serial) else { return };
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
                self.epoll.forget(nascent.sync());
                let _ = rustix::process::pidfd_send_signal(&nascent.pidfd, Signal::KILL);
                child.stage = Stage::Failing(nascent, asked, failure);
            }
            Stage::Starting(nascent, asked) => {
                let failure = of_container(&format!("start container {}", child.id), error);
                self.epoll.forget(nascent.sync());
                if child.pod_init {
                    let _ = rustix::process::pidfd_send_signal(&nascent.pidfd, Signal::KILL);
                    child.stage = Stage::Failing(nascent, asked, failure);
                } else {
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

    /// A child that never came to be was reaped: nothing of it stays.
    pub(crate) fn setup_ended(&mut self, serial: u64) {
        let Some(mut child) = self.containers.remove(&serial) else { return };
        let (nascent, asked, failure) = match child.change() {
            Stage::Failing(nascent, asked, failure) => (nascent, asked, failure),
            Stage::Setting(nascent, asked) => {
                self.epoll.forget(nascent.sync());
                let message = format!("create container {}: its process ended before it was set up", child.id);
                (nascent, asked, Failure::new(FailureKind::System, message))
            }
            _ => return,
        };
        child.output.close(&self.epoll);
        child.keep(nascent);
        if let Some(group) = child.group.take() {
            self.remove_group(group);
        }
        self.give_up_hooks(serial);
        let mut answers = vec![(asked, Err(failure))];
        answers.extend(std::mem::take(&mut child.deletes).into_iter().map(|asked| (asked, Ok(()))));
        self.stop_with_hooks(child.hooks.as_deref(), answers);
    }

    /// Removes a group whose processes are gone.
    pub(crate) fn remove_group(&self, group: cgroup::Group) {
        let path = group.path().clone();
        if let Err(error) = group.remove() {
            eprintln!("pinmon: remove cgroup {path}: {error}", path = path.as_str());
        }
    }
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
