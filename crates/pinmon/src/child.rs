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
//! SettingUp and Starting have a deadline (`setup.rs`), because the child runs in the cgroup of the container, where it
//! can be frozen. A pod init proceeds from Ready to Starting without a request. Adopted containers enter as Created,
//! Running or Exited.

use std::time::Duration;

use container::ContainerSetup;
use monitor_api::{ExitStatus, Failure, Holding, HoldingState, LogOptions, PendingHooks};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{connection::RequestId, output::Output, pipe::Pipe, programs::Filter};

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
    Running,
    /// The process exited, and its output is still being read.
    Draining(ExitStatus),
    Exited(ExitStatus),
    /// Placeholder while the stage changes.
    Changing,
}

/// A container or pod init.
pub(crate) struct Child {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    /// Path of the cgroup, as in `linux.cgroupsPath`.
    pub(crate) cgroup: String,
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
    /// Set when the stage no longer has a `ContainerSetup`, which holds pidfd and cgroup before.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) group: Option<cgroup::Group>,
    pub(crate) log: LogOptions,
    pub(crate) output: Output,
    pub(crate) stdin: Option<Pipe>,
    pub(crate) filter: Filter,
    /// Hooks that have not run yet.
    pub(crate) hooks: Option<Box<PendingHooks>>,
    pub(crate) pod_init: bool,
    /// Whether the container has its own user namespace, new or joined, according to its spec. The namespace that its
    /// init is in at the moment is controlled by the container.
    pub(crate) user_namespace: bool,
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
}

impl Child {
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

    /// Returns the entry for `Inventory`. `None`: the daemon does not know the container yet.
    pub(crate) fn holding(&self) -> Option<Holding> {
        let state = match &self.stage {
            Stage::SettingUp(..) | Stage::Failing(..) | Stage::Changing => return None,
            Stage::Created(_) => HoldingState::Created,
            Stage::Exited(status) => HoldingState::Exited(status.clone()),
            Stage::Starting(..) if self.pod_init => return None,
            Stage::Starting(..) | Stage::Running | Stage::Draining(_) if self.pod_init => HoldingState::PodInit,
            Stage::Starting(..) | Stage::Running | Stage::Draining(_) => HoldingState::Running,
        };
        Some(Holding {
            id: self.id.clone(),
            sandbox: self.sandbox.clone(),
            cgroup: self.cgroup.clone(),
            pid: self.pid.unsigned_abs(),
            start_time: self.start_time,
            log: self.log,
            state,
            hooks: self.hooks.clone(),
            user_namespace: Some(self.user_namespace),
        })
    }
}
