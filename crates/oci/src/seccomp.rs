use serde::{Deserialize, Serialize};

/// `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seccomp {
    /// What happens to calls that no rule names: `SCMP_ACT_ERRNO`, …
    pub default_action: String,
    /// errno of a default action that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// `SCMP_ARCH_X86_64`, …; the native one is always there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// `SECCOMP_FILTER_FLAG_…`; absent is not the same as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Socket of the agent that answers `SCMP_ACT_NOTIFY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_path: Option<String>,
    /// Sent to that agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_metadata: Option<String>,
    /// Rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub syscalls: Vec<SyscallRule>,
}

/// One of `linux.seccomp.syscalls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyscallRule {
    /// Names of system calls.
    pub names: Vec<String>,
    /// `SCMP_ACT_ALLOW`, …
    pub action: String,
    /// errno of an action that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// Conditions, all of which must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<SeccompArg>,
}

/// A condition on an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArg {
    /// Which argument, from 0.
    pub index: u32,
    /// Compared to.
    pub value: u64,
    /// Of `SCMP_CMP_MASKED_EQ`: `value` is the mask, this what the masked argument must be.
    pub value_two: u64,
    /// `SCMP_CMP_EQ`, …
    pub op: String,
}
