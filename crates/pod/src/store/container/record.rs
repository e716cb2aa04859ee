//! What is on record about a container.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use monitor_api::{CommandError, ExitStatus, OciRuntime};
use serde::{Deserialize, Serialize};

use super::{
    cause::{Cause, OOM_KILLED, START_ERROR, SentSignals},
    config::ContainerConfig,
    status::ContainerState,
};
use crate::{ContainerId, SandboxId, clock, store::timeline::Timeline};

/// Contents of `metadata.json`: what never changes after creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerMetadata {
    pub(crate) id: ContainerId,
    pub(crate) sandbox: SandboxId,
    pub(crate) config: Arc<ContainerConfig>,
    pub(crate) image_id: String,
    pub(crate) created_at: u64,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) cgroup: String,
    pub(crate) stop_signal: i32,
    /// The OCI runtime that runs it; `None`: the monitor itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<ContainerRuntime>,
    /// The containerd shim that runs it. At most one of `runtime`, this and `vm` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shim: Option<ContainerShim>,
    /// The virtual machine that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vm: Option<ContainerVm>,
}

/// The virtual machine of a container, as configured when the container was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerVm {
    /// Name of the runtime handler.
    pub(crate) handler: String,
    /// Time limit of a request to the agent in the guest, in seconds.
    pub(crate) timeout: u32,
    /// Id that the container has in its guest, if it was restored from a checkpoint: that of the container that was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guest_id: Option<ContainerId>,
}

/// The containerd shim of a container, as configured when the container was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerShim {
    /// Name of the runtime handler.
    pub(crate) handler: String,
    /// Absolute path of the program.
    pub(crate) binary: String,
    /// Environment of its commands.
    pub(crate) environment: Vec<String>,
    /// Options that it gets.
    pub(crate) options: Option<shim::Options>,
    /// Absolute path of the bundle directory. Its name is the container id.
    pub(crate) bundle: String,
    /// Path of the socket for events.
    pub(crate) events: String,
    /// Time limit of a command and of a request, in seconds.
    pub(crate) timeout: u32,
    /// Annotations of pods and containers that it gets: whole names, or prefixes that end with `*`.
    pub(crate) allowed_annotations: Vec<String>,
    /// Id of the sandbox container of the pod, which may be this container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox_container: Option<ContainerId>,
}

/// A running shim, as it stated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimProcess {
    /// How it is reached.
    pub(crate) bootstrap: shim::Bootstrap,
    /// Its pid; 0 if it is not known, or not in the mount namespace of the pod's shims.
    pub(crate) pid: u32,
    /// Start time of that process in clock ticks since boot.
    pub(crate) start_time: u64,
}

/// The OCI runtime of a container, as configured when the container was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRuntime {
    /// Name of the runtime handler.
    pub(crate) handler: String,
    /// Directory with the state of all containers of the handler.
    pub(crate) root: PathBuf,
    /// Its commands.
    pub(crate) command: OciRuntime,
    /// Annotations of pods and containers that it gets: whole names, or prefixes that end with `*`.
    pub(crate) allowed_annotations: Vec<String>,
    /// Annotations of all its containers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) default_annotations: BTreeMap<String, String>,
}

/// Phase of a container's lifecycle (drawn in the module `container`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ContainerPhase {
    Creating,
    Created,
    Starting,
    Running,
    Exited,
}

impl ContainerPhase {
    fn state(self) -> ContainerState {
        match self {
            Self::Creating => ContainerState::Unknown,
            Self::Created | Self::Starting => ContainerState::Created,
            Self::Running => ContainerState::Running,
            Self::Exited => ContainerState::Exited,
        }
    }
}

/// Contents of `status.json`: what changes during the container's lifetime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) phase: ContainerPhase,
    /// The current stage in words, for people.
    pub(crate) stage: String,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    /// Device and inode of the program that the process of an OCI runtime executed when it was created. It executes
    /// another one after it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_program: Option<(u64, u64)>,
    pub(crate) started_at: u64,
    pub(crate) finished_at: u64,
    pub(crate) exit_code: Option<i32>,
    /// The signal that terminated it, if any.
    #[serde(default)]
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Why it exited; `None` until then, and in the record of a daemon that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "SentSignals::is_empty")]
    pub(crate) sent: SentSignals,
    /// Cgroup that an NRI plugin chose; `None` means that of the metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<String>,
    /// Whether that cgroup did not exist before. Its name does not show that it belongs to this container.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) owns_cgroup: bool,
    /// Resources after the last update; `None` means those of the original request.
    #[serde(default)]
    pub(crate) resources: Option<oci::Resources>,
    /// OOM score adjustment after the last update; `None` means that of the original request.
    #[serde(default)]
    pub(crate) oom_score_adj: Option<i32>,
    /// Why its command cannot be executed: the error that `start` returns.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    /// What makes it impossible to execute the refused command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused_command: Option<CommandError>,
    #[serde(default)]
    pub(crate) timeline: Timeline,
    /// Its shim, once that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shim: Option<ShimProcess>,
    /// Whether it was restored from a checkpoint and not started since: its processes are frozen in the guest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) frozen: bool,
    /// The exit status that its shim reported, and may have forgotten since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shim_exit: Option<ExitStatus>,
    /// User of its first process; `None` until it is known.
    #[serde(default)]
    pub(crate) user: Option<oci::User>,
    /// Why its record is missing or unreadable; absent if the record is intact.
    #[serde(default)]
    pub(crate) broken: Option<String>,
    /// Exit status of a program that exited before `start` had recorded its outcome.
    #[serde(skip)]
    pub(crate) early_exit: Option<ExitStatus>,
}

impl ContainerRecord {
    pub(super) fn state(&self) -> ContainerState {
        match self.phase {
            // Without its record only the monitor's knowledge is left: whether the process is alive.
            phase if self.broken.is_some() && phase != ContainerPhase::Exited => ContainerState::Unknown,
            phase => phase.state(),
        }
    }

    /// Whether it exited because its program could not be started.
    pub(crate) fn has_start_failed(&self) -> bool {
        self.cause.map_or(self.reason == START_ERROR, |cause| matches!(cause, Cause::StartFailed { .. }))
    }

    /// Whether it exited and the OOM killer had killed a process of it.
    pub(crate) fn is_oom_killed(&self) -> bool {
        self.cause.map_or(self.reason == OOM_KILLED, |cause| matches!(cause, Cause::Oom { .. }))
    }

    /// Enters a stage, and records the time in the timeline.
    pub(crate) fn enter(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
        self.timeline.enter(stage);
    }

    /// Records that it was started.
    pub(crate) fn mark_started(&mut self) {
        self.phase = ContainerPhase::Running;
        self.frozen = false;
        self.enter("running");
    }

    /// Records the exit with this status.
    pub(crate) fn mark_exited(&mut self, status: &ExitStatus) {
        let cause = Cause::new(status, &self.sent);
        self.mark_ended(status, cause);
    }

    /// Like [`Self::mark_exited`], for this cause.
    pub(crate) fn mark_ended(&mut self, status: &ExitStatus, cause: Cause) {
        self.phase = ContainerPhase::Exited;
        self.finished_at = if status.at == 0 { clock::now() } else { status.at };
        self.exit_code = status.code;
        self.signal = status.signal;
        self.early_exit = None;
        self.enter("ended");
        self.cause = Some(cause);
        cause.reason(status.code).clone_into(&mut self.reason);
        cause.message().clone_into(&mut self.message);
    }
}

impl Default for ContainerRecord {
    fn default() -> Self {
        let mut record = Self {
            phase: ContainerPhase::Creating,
            stage: String::new(),
            pid: 0,
            start_time: 0,
            created_program: None,
            started_at: 0,
            finished_at: 0,
            exit_code: None,
            signal: None,
            reason: String::new(),
            message: String::new(),
            cause: None,
            sent: SentSignals::default(),
            cgroup: None,
            owns_cgroup: false,
            resources: None,
            oom_score_adj: None,
            refused: None,
            refused_command: None,
            timeline: Timeline::default(),
            shim: None,
            frozen: false,
            shim_exit: None,
            user: None,
            broken: None,
            early_exit: None,
        };
        record.enter("creating");
        record
    }
}

/// Exit code of a process that was killed, also by the kernel for want of memory.
pub(crate) const SIGKILLED: i32 = 128 + 9;

/// Returns the status of an exit that nobody observed, because the daemon and the monitor were both gone at the time.
pub(crate) fn unknown_exit() -> ExitStatus {
    ExitStatus { code: None, signal: None, oom_killed: false, at: clock::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_that_kubelet_knows() {
        let reason = |code, oom_killed| {
            let mut record = ContainerRecord::default();
            record.mark_exited(&ExitStatus { code, signal: None, oom_killed, at: 5 });
            assert_eq!((record.phase, record.finished_at), (ContainerPhase::Exited, 5));
            record.reason
        };
        assert_eq!(reason(Some(0), false), "Completed");
        assert_eq!(reason(Some(3), false), "Error");
        assert_eq!(reason(Some(137), true), "OOMKilled");
        assert_eq!(reason(None, false), "Unknown");
    }
}
