use serde::{Deserialize, Serialize};

/// `process`, also what `exec --process` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Whether it gets a terminal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// The terminal's first size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_size: Option<ConsoleSize>,
    /// Ids.
    pub user: User,
    /// Arguments, the first the program.
    pub args: Vec<String>,
    /// `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Working directory, absolute.
    pub cwd: String,
    /// Capability sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    /// `PR_SET_NO_NEW_PRIVS`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_new_privileges: bool,
    /// AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apparmor_profile: Option<String>,
    /// `/proc/self/oom_score_adj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// SELinux process label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_label: Option<String>,
    /// ioprio_set(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// sched_setattr(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// CPUs of a command while and after it enters the container.
    #[serde(rename = "execCPUAffinity", skip_serializing_if = "Option::is_none")]
    pub exec_cpu_affinity: Option<ExecCpuAffinity>,
}

/// `process.ioPriority`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoPriority {
    /// `IOPRIO_CLASS_RT`, `IOPRIO_CLASS_BE`, `IOPRIO_CLASS_IDLE`.
    pub class: String,
    /// 0, the highest, to 7.
    pub priority: i64,
}

/// `process.scheduler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduler {
    /// `SCHED_OTHER`, `SCHED_FIFO`, …
    pub policy: String,
    /// -20 to 19, of `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// 1 to 99, of `SCHED_FIFO` and `SCHED_RR`.
    pub priority: i32,
    /// `SCHED_FLAG_RESET_ON_FORK`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub runtime: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub deadline: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub period: u64,
}

/// `process.execCPUAffinity`: lists as `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecCpuAffinity {
    /// Before the command joins the container's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
    /// After.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleSize {
    /// Rows.
    pub height: u16,
    /// Columns.
    pub width: u16,
}

/// `process.user`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct User {
    /// User id, in the container's user namespace.
    pub uid: u32,
    /// Group id, in the container's user namespace.
    pub gid: u32,
    /// File mode creation mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Supplementary groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// `process.capabilities`: names as `CAP_NET_RAW`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// What execve may give.
    pub bounding: Vec<String>,
    /// What the kernel checks.
    pub effective: Vec<String>,
    /// What passes execve of a file with inheritable capabilities.
    pub inheritable: Vec<String>,
    /// What effective may be raised to.
    pub permitted: Vec<String>,
    /// What passes execve of an ordinary file.
    pub ambient: Vec<String>,
}

/// One of `process.rlimits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// `RLIMIT_NOFILE`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}
