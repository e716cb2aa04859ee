use serde::{Deserialize, Serialize};

/// `process`; also the format of `exec --process`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Whether the process has a terminal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// Initial size of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_size: Option<TerminalSize>,
    /// User and groups of the process.
    pub user: User,
    /// Arguments; the first is the program.
    pub args: Vec<String>,
    /// Environment variables, `NAME=value`.
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
    /// Whether to set no_new_privs (`PR_SET_NO_NEW_PRIVS`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_new_privileges: bool,
    /// AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apparmor_profile: Option<String>,
    /// Value of `/proc/self/oom_score_adj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// SELinux process label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_label: Option<String>,
    /// I/O priority (ioprio_set(2)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// Scheduling policy (sched_setattr(2)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// CPU affinity of an exec'd process, before and after it enters the container.
    #[serde(rename = "execCPUAffinity", skip_serializing_if = "Option::is_none")]
    pub exec_cpu_affinity: Option<ExecCpuAffinity>,
}

/// `process.ioPriority`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoPriority {
    /// Class: `IOPRIO_CLASS_RT`, `IOPRIO_CLASS_BE`, `IOPRIO_CLASS_IDLE`.
    pub class: String,
    /// Level, from 0 (the highest) to 7.
    pub priority: i64,
}

/// `process.scheduler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduler {
    /// Policy: `SCHED_OTHER`, `SCHED_FIFO`, …
    pub policy: String,
    /// Nice value, -20 to 19, for `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// Priority, 1 to 99, for `SCHED_FIFO` and `SCHED_RR`.
    pub priority: i32,
    /// Flags: `SCHED_FLAG_RESET_ON_FORK`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Runtime of `SCHED_DEADLINE`, in ns.
    pub runtime: u64,
    /// Deadline of `SCHED_DEADLINE`, in ns.
    pub deadline: u64,
    /// Period of `SCHED_DEADLINE`, in ns.
    pub period: u64,
}

/// `process.execCPUAffinity`: CPU lists such as `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecCpuAffinity {
    /// CPUs before the process joins the container's cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
    /// CPUs after the process has joined the container's cgroup.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// The size of a terminal in characters: `process.consoleSize`, and the same wherever a terminal is resized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Number of rows.
    pub height: u16,
    /// Number of columns.
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
    /// Supplementary group ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// `process.capabilities`: sets of names such as `CAP_NET_RAW` (capabilities(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Capabilities that execve may grant.
    pub bounding: Vec<String>,
    /// Capabilities that the kernel checks.
    pub effective: Vec<String>,
    /// Capabilities that are preserved across execve of a file with inheritable capabilities.
    pub inheritable: Vec<String>,
    /// Capabilities that may be made effective.
    pub permitted: Vec<String>,
    /// Capabilities that are preserved across execve of an unprivileged program.
    pub ambient: Vec<String>,
}

/// An entry of `process.rlimits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Resource: `RLIMIT_NOFILE`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_size_is_written_as_the_specification_requires() {
        let size = TerminalSize { width: 80, height: 24 };
        let text = r#"{"height":24,"width":80}"#;
        assert_eq!(serde_json::to_string(&size).expect("JSON"), text);
        assert_eq!(serde_json::from_str::<TerminalSize>(text).expect("a size"), size);
        assert!(serde_json::from_str::<TerminalSize>(r#"{"Height":24,"Width":80}"#).is_err());
    }
}
