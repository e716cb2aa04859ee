//! Setup of containers, from clone to execve.

use container::{ContainerSetup, Progress, hooks::HookPoint};
use monitor_api::{Failure, FailureKind};
use rustix::fd::OwnedFd;

use super::Monitor;
use crate::{
    closing::{Terminal, take_unread_terminal},
    containers::{Container, Stage, timeout_error},
    event::Timer,
    hooks::{self, AfterHooks},
    link::RequestId,
    removal::AfterRemoval,
    stream::StreamKind,
};

impl Monitor {
    /// Handles the messages of a child that has not reached execve.
    pub(crate) fn advance_container(&mut self, serial: u64) {
        while let Some(step) = self.containers.advance(serial) {
            match step {
                Ok(Progress::Pending) => return,
                Ok(Progress::Ready { terminal }) => self.set_up(serial, terminal),
                Ok(Progress::Executed) => return self.executed(serial),
                Ok(Progress::NamespacesCreated) => self.run_create_hooks(serial),
                Err(error) => return self.setup_failed(serial, &error),
            }
        }
    }

    /// Handles the deadline of the setup.
    pub(crate) fn set_up_due(&mut self, serial: u64) {
        let Some(container) = self.setting_up(serial) else { return };
        let time = container.setup_time();
        if self.hooks.are_creating(serial) {
            // Hooks have their own timeouts, and the child has the whole time after them.
            return self.services.timers.after(time, Timer::SetUp(serial));
        }
        self.setup_failed(serial, &timeout_error("it was not set up", time));
    }

    /// Handles the deadline from start to execve.
    pub(crate) fn execute_due(&mut self, serial: u64) {
        let Some(container) = self.containers.get(serial) else { return };
        if matches!(container.stage, Stage::Starting(..)) {
            let error = timeout_error("its process did not reach execve", container.setup_time());
            container.kill();
            self.setup_failed(serial, &error);
        }
    }

    /// Runs the createRuntime hooks. The child waits for them after it created its namespaces.
    fn run_create_hooks(&mut self, serial: u64) {
        let Some(container) = self.setting_up(serial) else { return };
        let (pending, pid) = (container.description.hooks.clone(), container.pid());
        let after = AfterHooks::Create(serial);
        let run = self.hooks.run(pending.as_deref(), HookPoint::CreateRuntime, pid, after, &mut self.services);
        if let Err((_, failure)) = run {
            self.create_hooks_done(serial, failure.map(|failure| failure.message));
        }
    }

    /// Continues the setup after the createRuntime hooks.
    pub(super) fn create_hooks_done(&mut self, serial: u64, failed: Option<String>) {
        let is_setting_up = |container: &&mut Container| matches!(container.stage, Stage::SettingUp(..));
        let Some(container) = self.containers.get_mut(serial).filter(is_setting_up) else { return };
        let result = match (failed, container.setup_mut()) {
            (Some(why), _) => Err(hooks::failure(&container.description.id, &why)),
            (None, Some(setup)) => setup.continue_setup(),
            (None, None) => return,
        };
        if let Err(error) = result {
            self.setup_failed(serial, &error);
        }
    }

    fn setting_up(&self, serial: u64) -> Option<&Container> {
        self.containers.get(serial).filter(|container| matches!(container.stage, Stage::SettingUp(..)))
    }

    fn set_up(&mut self, serial: u64, terminal: Option<OwnedFd>) {
        let Some(container) = self.containers.get_mut(serial) else { return };
        let close_queue = self.services.closers.queue.for_pod(&container.description.sandbox);
        let (setup, request_id) = match container.change() {
            Stage::SettingUp(setup, request_id) => (setup, request_id),
            other => {
                container.stage = other;
                return drop(terminal.map(|master| Terminal::new(master, &close_queue)));
            }
        };
        let output = self.outputs.map.get_mut(serial);
        if let (Some(terminal), Some(output)) = (terminal, output)
            && let Err(error) = output.add(StreamKind::Stdout, terminal, &close_queue)
        {
            eprintln!("pinmon: set up terminal of container {}: {error}", container.description.id);
        }
        if container.pod_init {
            return self.start(serial, setup, request_id);
        }
        let terminal = self.outputs.map.get(serial).and_then(|output| output.terminal());
        match container.created(&setup, terminal) {
            Ok(answer) => {
                container.stage = Stage::Created(setup);
                self.outputs.hand_over(serial, &mut self.services);
                self.services.reply(request_id, Ok(answer));
            }
            // The daemon would not know of the container.
            Err(failure) => {
                self.containers.give_up(serial, setup, request_id, failure, &mut self.services);
                self.reap_failed(serial);
            }
        }
    }

    /// Sends the start byte.
    pub(crate) fn start(&mut self, serial: u64, setup: ContainerSetup, request_id: RequestId) {
        if let Err(error) = self.containers.send_start(serial, setup, request_id, &mut self.services) {
            self.setup_failed(serial, &error);
        }
    }

    fn executed(&mut self, serial: u64) {
        let Some(container) = self.containers.get_mut(serial) else { return };
        let (setup, request_id) = match container.change() {
            Stage::Starting(setup, request_id) => (setup, request_id),
            other => {
                container.stage = other;
                return;
            }
        };
        self.services.epoll.forget(setup.sync());
        container.keep(setup);
        container.stage = Stage::Running;
        if container.pod_init {
            let answer = container.pod_init_started();
            self.services.reply(request_id, answer);
        } else {
            let (pending, pid) = (container.description.hooks.as_deref(), container.pid());
            let after = AfterHooks::Started(request_id);
            let run = self.hooks.run(pending, HookPoint::Poststart, pid, after, &mut self.services);
            if let Err((_, failure)) = run {
                if let Some(failure) = failure {
                    eprintln!("pinmon: {}", failure.message);
                }
                self.services.reply_done(request_id);
            }
        }
        // The parent of an adopted container may be another process.
        self.check_exit(serial, 0);
    }

    fn setup_failed(&mut self, serial: u64, error: &container::Error) {
        if self.containers.setup_failed(serial, error, &mut self.services) {
            self.reap_failed(serial);
        }
    }

    /// Removes a container whose setup failed and whose child was reaped.
    pub(super) fn remove_failed_setup(&mut self, serial: u64) {
        let Some(mut container) = self.containers.remove(serial) else { return };
        self.oom_kills.remove(&self.node.trees, serial, &container.description.cgroup);
        let output = self.outputs.map.remove(serial);
        let id = &container.description.id;
        let (mut setup, request_id, failure) = match std::mem::replace(&mut container.stage, Stage::Changing) {
            Stage::Failing(setup, request_id, failure) => (setup, request_id, failure),
            Stage::SettingUp(setup, request_id) => {
                self.services.epoll.forget(setup.sync());
                let message = format!("create container {id}: its process exited before it was set up");
                (setup, Some(request_id), Failure::new(FailureKind::System, message))
            }
            _ => return,
        };
        if let Some(mut output) = output {
            output.close(false);
        }
        let close_queue = self.services.closers.queue.for_pod(&container.description.sandbox);
        take_unread_terminal(&mut setup, &close_queue);
        container.keep(setup);
        self.hooks.cancel(serial, &self.services.epoll);
        let mut answers: Vec<_> = request_id.map(|request_id| (request_id, Err(failure))).into_iter().collect();
        answers.extend(container.deletes.iter().map(|request_id| (*request_id, Ok(()))));
        let hooks = container.description.hooks.take();
        match container.group.take() {
            Some(group) => {
                // The cgroup may contain an init that the intermediate process could not report.
                let _ = group.kill();
                self.remove_group(group, AfterRemoval::Answer(hooks, answers));
            }
            None => self.stop_with_hooks(hooks.as_deref(), answers),
        }
    }
}
