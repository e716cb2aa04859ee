//! A container or pod init, and its stages.
//!
//! ```text
//!  Create, PodInit ─▶ SettingUp ──Ready──▶ Created ──Start──▶ Starting ──execve──▶ Running
//!                        │                    │                  │ execve failed      │
//!                     a step                  └───────────┬──────┴────────────────────┘
//!                     failed                       its process exited
//!                        ▼                                ▼
//!                     Failing                          Draining ──all output read──▶ Exited ──Delete──▶ removed
//!                        └── reaped: cgroup removed, ─────────────────────────────────────────────────▶ removed
//!                            request answered
//! ```
//!
//! With an OCI runtime (`oci_runtime.rs`) the stages before Running are Creating, Undoing and Waiting.
//!
//! SettingUp and Starting have a deadline (`containers/setup.rs`), because the child runs in the cgroup of the
//! container, where it can be frozen. A pod init proceeds from Ready to Starting without a request. Adopted containers enter as Created,
//! Running or Exited.

use std::time::Duration;

use container::ContainerSetup;
use monitor_api::{ContainerDescription, ExitStatus, Failure, HoldingState};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Signal, pidfd_send_signal},
};

use crate::{closing::Pipe, link::RequestId, process::start_time, programs::Filter};

/// Stage of a container.
pub(crate) enum Stage {
    /// The child sets itself up.
    SettingUp(ContainerSetup, RequestId),
    /// The child failed and is about to be reaped. The request is `None` after it was answered because reaping took too
    /// long.
    Failing(ContainerSetup, Option<RequestId>, Failure),
    /// Set up, and waiting for `Start`.
    Created(ContainerSetup),
    /// The start byte was sent.
    Starting(ContainerSetup, RequestId),
    /// The OCI runtime creates it.
    Creating,
    /// The OCI runtime failed to create it, and deletes what is left over.
    Undoing(RequestId, Failure),
    /// Created by an OCI runtime, and waiting for `Start`.
    Waiting,
    Running,
    /// The process exited, and its output is still being read.
    Draining(ExitStatus),
    Exited(ExitStatus),
    /// Placeholder while the stage changes.
    Changing,
}

/// A container or pod init.
pub(crate) struct Container {
    /// What an inventory lists and an upgrade saves.
    pub(crate) description: ContainerDescription,
    /// Set when the stage no longer has a `ContainerSetup`, which holds pidfd and cgroup before.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) group: Option<cgroup::Group>,
    pub(crate) stdin: Option<Pipe>,
    pub(crate) filter: Filter,
    pub(crate) pod_init: bool,
    /// Total timeout of the hooks that run in the child.
    pub(crate) hooks_time: Duration,
    /// The process may not be a child of this one; then its exit is detected by its pidfd.
    pub(crate) adopted: bool,
    pub(crate) stage: Stage,
    pub(crate) warnings: Vec<String>,
    /// `Delete` requests that wait for its exit.
    pub(crate) deletes: Vec<RequestId>,
    /// Whether its cgroup is being removed.
    pub(crate) removing: bool,
    /// Whether its OCI runtime has deleted it.
    pub(crate) runtime_deleted: bool,
}

impl Container {
    /// Creates a container whose stage the caller sets.
    pub(crate) fn new(description: ContainerDescription, filter: Filter) -> Self {
        Self {
            description,
            pidfd: None,
            group: None,
            stdin: None,
            filter,
            pod_init: false,
            hooks_time: Duration::ZERO,
            adopted: false,
            stage: Stage::Changing,
            warnings: Vec::new(),
            deletes: Vec::new(),
            removing: false,
            runtime_deleted: false,
        }
    }

    /// Returns the pid of its process; 0 before the process exists.
    pub(crate) fn pid(&self) -> i32 {
        self.description.pid.cast_signed()
    }

    /// Whether it has its own user namespace, new or joined, according to its spec. The namespace that its init is in at
    /// the moment is controlled by the container.
    pub(crate) fn has_user_namespace(&self) -> bool {
        self.description.user_namespace == Some(true)
    }

    /// Records its process.
    pub(crate) fn set_pid(&mut self, pid: i32) {
        self.description.pid = pid.unsigned_abs();
        self.description.start_time = start_time(pid).unwrap_or(0);
    }
    /// Returns the setup, while there is one.
    pub(crate) fn setup(&self) -> Option<&ContainerSetup> {
        match &self.stage {
            Stage::SettingUp(setup, _)
            | Stage::Failing(setup, ..)
            | Stage::Created(setup)
            | Stage::Starting(setup, _) => Some(setup),
            _ => None,
        }
    }

    /// Returns the setup for advancing it.
    pub(crate) fn setup_mut(&mut self) -> Option<&mut ContainerSetup> {
        match &mut self.stage {
            Stage::SettingUp(setup, _)
            | Stage::Failing(setup, ..)
            | Stage::Created(setup)
            | Stage::Starting(setup, _) => Some(setup),
            _ => None,
        }
    }

    /// Returns the pidfd of its process.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.setup().map(|setup| setup.pidfd.as_fd()).or_else(|| self.pidfd.as_ref().map(AsFd::as_fd))
    }

    /// Returns its cgroup.
    pub(crate) fn group(&self) -> Option<&cgroup::Group> {
        self.setup().map(|setup| &setup.group).or(self.group.as_ref())
    }

    /// Whether its process has exited.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Draining(_) | Stage::Exited(_))
    }

    /// Whether its OCI runtime deletes it because its creation failed. Its exit is not reported then.
    pub(crate) fn is_undone_by_runtime(&self) -> bool {
        matches!(self.stage, Stage::Undoing(..))
    }

    /// Returns its cgroup, after it was killed, while processes of it are running.
    pub(crate) fn unfinished_group(&self) -> Option<&cgroup::Group> {
        self.group().filter(|group| !self.has_ended() || !group.is_empty().unwrap_or(true))
    }

    /// Takes the stage; the caller must set another one.
    pub(crate) fn change(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Changing)
    }

    /// Keeps pidfd and cgroup of a completed setup.
    pub(crate) fn keep(&mut self, setup: ContainerSetup) {
        let ContainerSetup { pidfd, group, .. } = setup;
        self.pidfd = Some(pidfd);
        self.group = Some(group);
    }

    /// Returns its state for `Inventory`. `None`: the daemon does not know the container yet.
    pub(crate) fn holding_state(&self) -> Option<HoldingState> {
        match &self.stage {
            Stage::SettingUp(..) | Stage::Failing(..) | Stage::Creating | Stage::Undoing(..) | Stage::Changing => None,
            Stage::Created(_) | Stage::Waiting => Some(HoldingState::Created),
            Stage::Exited(status) => Some(HoldingState::Exited(status.clone())),
            Stage::Starting(..) if self.pod_init => None,
            Stage::Starting(..) | Stage::Running | Stage::Draining(_) if self.pod_init => Some(HoldingState::PodInit),
            Stage::Starting(..) | Stage::Running | Stage::Draining(_) => Some(HoldingState::Running),
        }
    }

    /// Kills its cgroup and its process while it is being set up, even if they are frozen.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group()
            && let Err(error) = group.kill()
        {
            eprintln!("pinmon: kill container {}: {error}", self.description.id);
        }
        if let Some(pidfd) = self.pidfd() {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    /// Kills the processes that a container without its own PID namespace left in its cgroup.
    pub(crate) fn kill_remaining(&self) {
        if let Some(group) = &self.group
            && !group.is_empty().unwrap_or(true)
            && let Err(error) = group.kill()
        {
            eprintln!("pinmon: kill leftover processes of container {}: {error}", self.description.id);
        }
    }
}
