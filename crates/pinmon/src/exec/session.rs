//! An exec'd process and its stages.

use std::time::Duration;

use cgroup::Group;
use container::ContainerSetup;
use monitor_api::{Attachments, ExecStarted, Failure, Reply, Role};
use rustix::{
    fd::{AsFd, BorrowedFd},
    process::Signal,
};

use crate::{
    closing::{CloseQueue, Terminal},
    event::Epoll,
    failure::system,
    link::{Answer, RequestId},
};

/// Stage of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecStage {
    /// It has not reached execve.
    Starting(RequestId),
    Running,
    /// A step or execve failed. The request is answered when the process is reaped.
    Failed(RequestId),
    /// Reaped, or killed and not waited for any longer. Processes may be left over in its cgroup.
    Leftover,
}

/// Process or cgroup of an exec.
pub(crate) enum ExecHandle {
    /// Process and cgroup.
    Process(Box<ContainerSetup>),
    /// Cgroup only, in [`ExecStage::Leftover`].
    Group(Group),
}

/// A process that `Exec` executes in a container.
pub(crate) struct ExecSession {
    pub(crate) id: String,
    pub(crate) container: String,
    /// Queue for the terminals of its container's pod.
    pub(crate) close_queue: CloseQueue,
    pub(crate) handle: ExecHandle,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) warnings: Vec<String>,
    pub(crate) stage: ExecStage,
    /// Moment of [`crate::clock::monotonic`] by which it must have reached execve.
    pub(crate) deadline: Duration,
    /// Why it failed.
    pub(crate) failure: Option<Failure>,
}

impl ExecSession {
    /// Returns its setup, in all stages but [`ExecStage::Leftover`].
    pub(crate) fn setup(&self) -> Option<&ContainerSetup> {
        if let ExecHandle::Process(setup) = &self.handle { Some(setup) } else { None }
    }

    /// Whether its process has this pid and was not reaped.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        self.setup().is_some_and(|setup| setup.pid.as_raw_pid() == pid)
    }

    pub(super) fn setup_mut(&mut self) -> Option<&mut ContainerSetup> {
        if let ExecHandle::Process(setup) = &mut self.handle { Some(setup) } else { None }
    }

    pub(crate) fn group(&self) -> &Group {
        match &self.handle {
            ExecHandle::Process(setup) => &setup.group,
            ExecHandle::Group(group) => group,
        }
    }

    /// Returns its cgroup, after it was killed, while processes of it are running.
    pub(crate) fn unfinished_group(&self) -> Option<&Group> {
        let is_reaped = self.stage == ExecStage::Leftover;
        Some(self.group()).filter(|group| !is_reaped || !group.is_empty().unwrap_or(true))
    }

    pub(super) fn into_group(self) -> Group {
        match self.handle {
            ExecHandle::Process(setup) => setup.group,
            ExecHandle::Group(group) => group,
        }
    }

    /// Kills it with all its descendants, even if they are frozen. The process is also killed by pidfd, because the
    /// container may have moved it to another cgroup.
    pub(crate) fn kill(&self) {
        if let Err(error) = self.group().kill() {
            eprintln!("pinmon: kill exec {} in container {}: {error}", self.id, self.container);
        }
        if let Some(setup) = self.setup() {
            let _ = rustix::process::pidfd_send_signal(&setup.pidfd, Signal::KILL);
        }
    }

    /// Stops watching its socket.
    pub(super) fn forget(&self, epoll: &Epoll) {
        if let Some(setup) = self.setup() {
            epoll.forget(setup.sync());
        }
    }

    /// Returns the answer to the request once execve succeeded.
    pub(super) fn started(&self) -> Answer {
        let duplicate = |object: &str, fd: BorrowedFd<'_>| {
            let failed = |cause: std::io::Error| {
                let cause = format_args!("duplicate the {object}: {cause}");
                system(format_args!("exec in container {}", self.container), cause)
            };
            fd.try_clone_to_owned().map_err(failed)
        };
        let Some(setup) = self.setup() else { return Err(system("exec", "its process is unknown")) };
        let mut attachments = Attachments::new().with(Role::Pidfd, duplicate("pidfd", setup.pidfd.as_fd())?);
        if let Some(terminal) = &self.terminal {
            attachments.push(Role::Terminal, duplicate("terminal", terminal.as_fd())?);
        }
        let started = ExecStarted { pid: setup.pid.as_raw_pid().unsigned_abs(), warnings: self.warnings.clone() };
        Ok((Reply::ExecStarted(started), attachments))
    }
}
