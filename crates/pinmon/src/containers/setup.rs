//! Containers from clone to execve.

use std::time::Duration;

use container::{ContainerSetup, Progress};
use monitor_api::Failure;

use super::{
    Containers,
    container::{Container, Stage},
};
use crate::{event::Timer, failure::of_container, link::RequestId, services::Services};

/// Time limit of the setup of a container, and again from its start to execve, in addition to the timeouts of its
/// hooks.
const SETUP_DEADLINE: Duration = Duration::from_secs(60);
/// Time after which the request is answered although the killed process was not reaped.
const ANSWER_AFTER: Duration = Duration::from_secs(2);

impl Container {
    /// Returns the time limit of its setup, and again from its start to execve.
    pub(crate) fn setup_time(&self) -> Duration {
        SETUP_DEADLINE + self.hooks_time
    }
}

impl Containers {
    /// Handles the next message of a child that has not reached execve. `None`: there is none.
    pub(crate) fn advance(&mut self, serial: u64) -> Option<Result<Progress, container::Error>> {
        // Messages of a failed child are ignored: it is killed, and the request is answered when it is reaped.
        let is_advancing = |container: &&mut Container| !matches!(container.stage, Stage::Failing(..));
        let container = self.get_mut(serial).filter(is_advancing)?;
        let setup = container.setup_mut()?;
        let advanced = setup.advance();
        // The intermediate process reports the pid of the init process.
        let pid = setup.pid.as_raw_pid();
        if pid != container.pid() {
            container.set_pid(pid);
        }
        match advanced {
            Ok(Progress::Pending) => None,
            advanced => Some(advanced),
        }
    }

    /// Sends the start byte.
    pub(crate) fn send_start(
        &mut self,
        serial: u64,
        mut setup: ContainerSetup,
        request_id: RequestId,
        services: &mut Services,
    ) -> Result<(), container::Error> {
        let started = setup.start();
        let Some(container) = self.get_mut(serial) else { return Ok(()) };
        services.timers.after(container.setup_time(), Timer::Execute(serial));
        container.stage = Stage::Starting(setup, request_id);
        started
    }

    /// Handles an error before execve. Returns whether the child was killed, so that its record is removed once it is
    /// reaped.
    pub(crate) fn setup_failed(&mut self, serial: u64, error: &container::Error, services: &mut Services) -> bool {
        let Some(container) = self.get_mut(serial) else { return false };
        match container.change() {
            Stage::SettingUp(setup, request_id) => {
                let failure = of_container(&format!("create container {}", container.description.id), error);
                self.give_up(serial, setup, request_id, failure, services);
                return true;
            }
            Stage::Starting(setup, request_id) => {
                let failure = of_container(&format!("start container {}", container.description.id), error);
                if container.pod_init {
                    self.give_up(serial, setup, request_id, failure, services);
                    return true;
                }
                services.epoll.forget(setup.sync());
                container.keep(setup);
                container.stage = Stage::Running;
                services.reply(request_id, Err(failure));
            }
            // It exited while it waited. The exit is reported when it is reaped.
            Stage::Created(setup) => {
                services.epoll.forget(setup.sync());
                container.stage = Stage::Created(setup);
            }
            other => container.stage = other,
        }
        false
    }

    /// Kills a child. The request is answered when it is reaped, or after [`ANSWER_AFTER`].
    pub(crate) fn give_up(
        &mut self,
        serial: u64,
        setup: ContainerSetup,
        request_id: RequestId,
        failure: Failure,
        services: &mut Services,
    ) {
        let Some(container) = self.get_mut(serial) else { return };
        services.epoll.forget(setup.sync());
        container.stage = Stage::Failing(setup, Some(request_id), failure);
        container.kill();
        services.timers.after(ANSWER_AFTER, Timer::Answer(serial));
    }

    /// Answers the request of a failed setup that was killed and not reaped in time. The record stays until it is
    /// reaped.
    pub(crate) fn answer_due(&mut self, serial: u64, services: &mut Services) {
        let Some(Stage::Failing(_, request_id, failure)) = self.get_mut(serial).map(|c| &mut c.stage) else { return };
        if let Some(request_id) = request_id.take() {
            services.reply(request_id, Err(failure.clone()));
        }
    }
}

/// Returns the error of a child that exceeded its time limit.
pub(crate) fn timeout_error(problem: &str, after: Duration) -> container::Error {
    let seconds = after.as_secs();
    let message = format!(
        "timed out: {problem} in {seconds} s and was killed; is its cgroup frozen or out of CPU time, or does the \
         server of a volume not respond?"
    );
    container::Error::new(container::ErrorKind::System, message)
}
