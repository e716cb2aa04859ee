//! A container (or pod init) and the way it goes.
//!
//! ```text
//!  Create, PodInit ─▶ Setting ──Ready──▶ Created ──Start──▶ Starting ──execve──▶ Running
//!                        │                  │                  │ execve failed      │
//!                     a step                └───────────┬──────┴────────────────────┘
//!                     failed                     its process ended
//!                        ▼                              ▼
//!                     Failing                        Draining ──output at its end──▶ Exited ──Delete──▶ forgotten
//!                        └── reaped: group removed, ───────────────────────────────────────────────────▶ forgotten
//!                            the request answered
//! ```
//!
//! From Setting and Starting it has a deadline (`setup.rs`): its child runs in the container's group, where it can be
//! frozen. A pod init goes from Ready to Starting by itself. What a dead monitor held comes in as Created, Running or
//! Exited.

use std::time::Duration;

use container::Nascent;
use monitor_api::{ExitStatus, Failure, HeldHooks, Holding, HoldingState, LogOptions};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{connection::Asked, output::Output, pipe::Pipe, programs::Filter};

/// How far it is.
pub(crate) enum Stage {
    /// Its child sets itself up.
    Setting(Nascent, Asked),
    /// Its child failed and is about to be reaped; nobody to be answered where that took too long.
    Failing(Nascent, Option<Asked>, Failure),
    /// Set up; waits.
    Created(Nascent),
    /// Was told to go.
    Starting(Nascent, Asked),
    Running,
    /// Its process ended; its output is on the way.
    Draining(ExitStatus),
    Exited(ExitStatus),
    /// Only while one stage becomes another.
    Changing,
}

/// See the head of this file.
pub(crate) struct Child {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    /// As `linux.cgroupsPath`.
    pub(crate) cgroup: String,
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
    /// Once there is no `Nascent` that has them.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) group: Option<cgroup::Group>,
    pub(crate) log: LogOptions,
    pub(crate) output: Output,
    pub(crate) stdin: Option<Pipe>,
    pub(crate) filter: Filter,
    /// Still to be run, where it has any.
    pub(crate) hooks: Option<Box<HeldHooks>>,
    pub(crate) pod_init: bool,
    /// Whether it has a user namespace of its own, new or joined: as its spec has it. What namespace its init is in now
    /// is the container's choice.
    pub(crate) user_namespace: bool,
    /// How long its own hooks may take, in its child.
    pub(crate) hooks_time: Duration,
    /// Its process may be the child of another one than this: its end is seen by its pidfd.
    pub(crate) adopted: bool,
    pub(crate) stage: Stage,
    pub(crate) warnings: Vec<String>,
    /// `Delete`s that wait for its end.
    pub(crate) deletes: Vec<Asked>,
    /// Whether its group is on its way out.
    pub(crate) removing: bool,
}

impl Child {
    /// The one that has the process, while there is one.
    pub(crate) fn nascent(&self) -> Option<&Nascent> {
        match &self.stage {
            Stage::Setting(nascent, _)
            | Stage::Failing(nascent, ..)
            | Stage::Created(nascent)
            | Stage::Starting(nascent, _) => Some(nascent),
            _ => None,
        }
    }

    /// The same, to advance it.
    pub(crate) fn nascent_mut(&mut self) -> Option<&mut Nascent> {
        match &mut self.stage {
            Stage::Setting(nascent, _)
            | Stage::Failing(nascent, ..)
            | Stage::Created(nascent)
            | Stage::Starting(nascent, _) => Some(nascent),
            _ => None,
        }
    }

    /// Its process.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.nascent().map(|nascent| nascent.pidfd.as_fd()).or_else(|| self.pidfd.as_ref().map(AsFd::as_fd))
    }

    /// Its cgroup.
    pub(crate) fn group(&self) -> Option<&cgroup::Group> {
        self.nascent().map(|nascent| &nascent.group).or(self.group.as_ref())
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Draining(_) | Stage::Exited(_))
    }

    /// Takes the stage, to put another in its place.
    pub(crate) fn change(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Changing)
    }

    /// Keeps what is left of a child that needs nothing said any more.
    pub(crate) fn keep(&mut self, nascent: Nascent) {
        let Nascent { pidfd, group, .. } = nascent;
        self.pidfd = Some(pidfd);
        self.group = Some(group);
    }

    /// For `Inventory`; `None`: the daemon does not know of it yet.
    pub(crate) fn holding(&self) -> Option<Holding> {
        let state = match &self.stage {
            Stage::Setting(..) | Stage::Failing(..) | Stage::Changing => return None,
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
