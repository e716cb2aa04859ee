//! Setup of containers, from clone to execve.

use std::time::Duration;

use container::{ContainerSetup, Progress, hooks::HookPoint};
use monitor_api::{Attachments, Created, Failure, FailureKind, PodInitStarted, Reply, Role};
use oci::NamespaceType;
use rustix::{fd::OwnedFd, process::Signal};

use crate::{
    child::{Child, Stage},
    connection::RequestId,
    exec::ANSWER_AFTER,
    failure::{of_container, system},
    hooks::{self, AfterHooks},
    monitor::Monitor,
    process::start_time,
    removal::AfterRemoval,
    stream::StreamKind,
    terminal::take_unread_terminal,
    timer::Timer,
};

/// Time limit of the setup of a container, and again from its start to execve, in addition to the timeouts of its
/// hooks.
pub(crate) const SETUP_DEADLINE: Duration = Duration::from_secs(60);

impl Monitor {
    /// Handles the messages of a child that has not reached execve.
    pub(crate) fn advance(&mut self, serial: u64) {
        if self.makers.contains_key(&serial) {
            return self.advance_maker(serial);
        }
        if self.runners.contains_key(&serial) {
            return self.advance_runner(serial);
        }
        if self.execs.contains_key(&serial) {
            return self.advance_exec(serial);
        }
        loop {
            // Messages of a failed child are ignored: it is killed, and the request is answered when it is reaped.
            let advancing = |child: &&mut Child| !matches!(child.stage, Stage::Failing(..));
            let child = self.containers.get_mut(&serial).filter(advancing);
            let Some(setup) = child.and_then(Child::setup_mut) else { return };
            let advanced = setup.advance();
            self.update_pid(serial);
            match advanced {
                Ok(Progress::Pending) => return,
                Ok(Progress::Ready { terminal }) => self.set_up(serial, terminal),
                Ok(Progress::Executed) => return self.executed(serial),
                Ok(Progress::NamespacesCreated) => self.run_create_hooks(serial),
                Err(error) => return self.failed(serial, &error),
            }
        }
    }

    /// Takes over the pid of the init process from its intermediate process.
    fn update_pid(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Some(pid) = child.setup().map(|setup| setup.pid.as_raw_pid()).filter(|pid| *pid != child.pid) else {
            return;
        };
        child.pid = pid;
        child.start_time = start_time(pid).unwrap_or(0);
    }

    /// Handles the deadline of the setup.
    pub(crate) fn set_up_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        if !matches!(child.stage, Stage::SettingUp(..)) {
            return;
        }
        if self.create_hooks_running(serial) {
            // Hooks have their own timeouts, and the child has the whole time after them.
            let time = SETUP_DEADLINE + child.hooks_time;
            return self.timers.after(time, Timer::SetUp(serial));
        }
        let error = timeout_error("it was not set up", SETUP_DEADLINE + child.hooks_time);
        self.failed(serial, &error);
    }

    /// Handles the deadline from start to execve.
    pub(crate) fn execute_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        if matches!(child.stage, Stage::Starting(..)) {
            let error = timeout_error("its process did not reach execve", SETUP_DEADLINE + child.hooks_time);
            kill(child);
            self.failed(serial, &error);
        }
    }

    /// Answers the request of a failed setup that was killed and not reaped in time. The record stays until it is
    /// reaped.
    pub(crate) fn answer_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Stage::Failing(_, request_id, failure) = &mut child.stage else { return };
        if let Some(request_id) = request_id.take() {
            let failure = failure.clone();
            self.reply(request_id, Err(failure));
        }
    }

    /// Runs the createRuntime hooks. The child waits for them after it created its namespaces.
    fn run_create_hooks(&mut self, serial: u64) {
        let is_setting_up = |child: &&Child| matches!(child.stage, Stage::SettingUp(..));
        let Some(child) = self.containers.get(&serial).filter(is_setting_up) else { return };
        let (pending, pid) = (child.hooks.clone(), child.pid);
        match self.run_hooks(pending.as_deref(), HookPoint::CreateRuntime, pid, AfterHooks::Create(serial)) {
            Ok(()) => {}
            Err((_, failure)) => self.create_hooks_done(serial, failure.map(|failure| failure.message)),
        }
    }

    /// Continues the setup after the createRuntime hooks.
    pub(crate) fn create_hooks_done(&mut self, serial: u64, failed: Option<String>) {
        let is_setting_up = |child: &&mut Child| matches!(child.stage, Stage::SettingUp(..));
        let Some(child) = self.containers.get_mut(&serial).filter(is_setting_up) else { return };
        let result = match (failed, child.setup_mut()) {
            (Some(why), _) => Err(hooks::failure(&child.id, &why)),
            (None, Some(setup)) => setup.continue_setup(),
            (None, None) => return,
        };
        if let Err(error) = result {
            self.failed(serial, &error);
        }
    }

    fn set_up(&mut self, serial: u64, terminal: Option<OwnedFd>) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let (setup, request_id) = match child.change() {
            Stage::SettingUp(setup, request_id) => (setup, request_id),
            other => {
                child.stage = other;
                return drop(
                    terminal.map(|master| self.terminals.close_queue.for_pod(&child.sandbox).terminal(master)),
                );
            }
        };
        if let Some(terminal) = terminal
            && let Err(error) =
                child.output.add(StreamKind::Stdout, terminal, &self.terminals.close_queue.for_pod(&child.sandbox))
        {
            eprintln!("pinmon: set up terminal of container {}: {error}", child.id);
        }
        if child.pod_init {
            return self.send_start(serial, setup, request_id);
        }
        match created(child, &setup) {
            Ok(answer) => {
                child.stage = Stage::Created(setup);
                self.hand_over(serial);
                self.reply(request_id, Ok(answer));
            }
            // The daemon would not know of the container.
            Err(failure) => self.fail(serial, setup, request_id, failure),
        }
    }

    /// Sends the start byte.
    pub(crate) fn send_start(&mut self, serial: u64, mut setup: container::ContainerSetup, request_id: RequestId) {
        let started = setup.start();
        let Some(child) = self.containers.get_mut(&serial) else { return };
        self.timers.after(SETUP_DEADLINE + child.hooks_time, Timer::Execute(serial));
        child.stage = Stage::Starting(setup, request_id);
        if let Err(error) = started {
            self.failed(serial, &error);
        }
    }

    fn executed(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let (setup, request_id) = match child.change() {
            Stage::Starting(setup, request_id) => (setup, request_id),
            other => {
                child.stage = other;
                return;
            }
        };
        self.epoll.forget(setup.sync());
        child.keep(setup);
        child.stage = Stage::Running;
        if child.pod_init {
            let answer = pod_init_started(child);
            self.reply(request_id, answer);
        } else {
            let (pending, pid) = (child.hooks.clone(), child.pid);
            if let Err((_, failure)) =
                self.run_hooks(pending.as_deref(), HookPoint::Poststart, pid, AfterHooks::Started(request_id))
            {
                if let Some(failure) = failure {
                    eprintln!("pinmon: {}", failure.message);
                }
                self.reply(request_id, Ok((Reply::Done, Attachments::new())));
            }
        }
        // The parent of an adopted container may be another process.
        self.check_exit(serial, 0);
    }

    fn failed(&mut self, serial: u64, error: &container::Error) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        match child.change() {
            Stage::SettingUp(setup, request_id) => {
                let failure = of_container(&format!("create container {}", child.id), error);
                self.fail(serial, setup, request_id, failure);
            }
            Stage::Starting(setup, request_id) => {
                let failure = of_container(&format!("start container {}", child.id), error);
                if child.pod_init {
                    self.fail(serial, setup, request_id, failure);
                } else {
                    self.epoll.forget(setup.sync());
                    child.keep(setup);
                    child.stage = Stage::Running;
                    self.reply(request_id, Err(failure));
                }
            }
            // It exited while it waited. The exit is reported when it is reaped.
            Stage::Created(setup) => {
                self.epoll.forget(setup.sync());
                child.stage = Stage::Created(setup);
            }
            other => child.stage = other,
        }
    }

    /// Kills a container whose poststart hook failed (runtime.md, "Lifecycle", step 9). Its exit is reported as usual.
    pub(crate) fn kill_container(&self, container: &str) {
        if let Some(child) = self.find(container).and_then(|serial| self.containers.get(&serial)) {
            kill(child);
        }
    }

    /// Kills a child. The request is answered when it is reaped, or after [`ANSWER_AFTER`].
    fn fail(&mut self, serial: u64, setup: ContainerSetup, request_id: RequestId, failure: Failure) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        self.epoll.forget(setup.sync());
        child.stage = Stage::Failing(setup, Some(request_id), failure);
        kill(child);
        self.timers.after(ANSWER_AFTER, Timer::Answer(serial));
        self.reap_failed(serial);
    }

    /// Removes a container whose setup failed and whose child was reaped.
    pub(crate) fn remove_failed_setup(&mut self, serial: u64) {
        let Some(mut child) = self.containers.remove(&serial) else { return };
        let (setup, request_id, failure) = match child.change() {
            Stage::Failing(setup, request_id, failure) => (setup, request_id, failure),
            Stage::SettingUp(setup, request_id) => {
                self.epoll.forget(setup.sync());
                let message = format!("create container {}: its process exited before it was set up", child.id);
                (setup, Some(request_id), Failure::new(FailureKind::System, message))
            }
            _ => return,
        };
        child.output.close(false);
        let mut setup = setup;
        take_unread_terminal(&self.terminals.close_queue.for_pod(&child.sandbox), Some(&mut setup));
        child.keep(setup);
        self.cancel_hooks(serial);
        let mut answers: Vec<_> = request_id.map(|request_id| (request_id, Err(failure))).into_iter().collect();
        answers.extend(std::mem::take(&mut child.deletes).into_iter().map(|request_id| (request_id, Ok(()))));
        match child.group.take() {
            Some(group) => {
                // The cgroup may contain an init that the intermediate process could not report.
                let _ = group.kill();
                self.remove_group(group, AfterRemoval::Answer(child.hooks, answers));
            }
            None => self.stop_with_hooks(child.hooks.as_deref(), answers),
        }
    }
}

/// Kills all processes of a container that is being set up, even if they are frozen.
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

fn timeout_error(problem: &str, after: Duration) -> container::Error {
    let seconds = after.as_secs();
    let message = format!(
        "timed out: {problem} in {seconds} s and was killed; is its cgroup frozen or out of CPU time, or does the \
         server of a volume not respond?"
    );
    container::Error::new(container::ErrorKind::System, message)
}

fn created(child: &Child, setup: &container::ContainerSetup) -> Result<(Reply, Attachments), Failure> {
    let duplicate = |object: &str, fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().map_err(|e| system(format!("create container {}: duplicate its {object}", child.id), e))
    };
    let mut attachments = Attachments::new()
        .with(Role::Pidfd, duplicate("pidfd", std::os::fd::AsFd::as_fd(&setup.pidfd))?)
        .with(Role::Sync, duplicate("start gate", setup.sync())?);
    if let Some(terminal) = child.output.terminal() {
        attachments.push(Role::Terminal, duplicate("terminal", std::os::fd::AsFd::as_fd(terminal))?);
    }
    let created =
        Created { pid: child.pid.unsigned_abs(), start_time: child.start_time, warnings: child.warnings.clone() };
    Ok((Reply::Created(created), attachments))
}

fn pod_init_started(child: &Child) -> Result<(Reply, Attachments), Failure> {
    let operation = |step: &str| format!("start init of pod {}: {step}", child.id);
    let pidfd = child.pidfd.as_ref().ok_or_else(|| Failure::new(FailureKind::System, operation("it has no pidfd")))?;
    let path = format!("/proc/{}/ns/pid", child.pid);
    let namespace = std::fs::File::open(&path).map_err(|e| system(operation(&format!("open {path}")), e))?;
    let attachments = Attachments::new()
        .with(Role::Pidfd, pidfd.try_clone().map_err(|e| system(operation("duplicate its pidfd"), e))?)
        .with(Role::Namespace(NamespaceType::Pid), namespace.into());
    let started = PodInitStarted { pid: child.pid.unsigned_abs(), start_time: start_time(child.pid).unwrap_or(0) };
    Ok((Reply::PodInitStarted(started), attachments))
}
