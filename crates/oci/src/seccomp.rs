use serde::{Deserialize, Serialize};

/// `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seccomp {
    /// Action for calls without a matching rule: `SCMP_ACT_ERRNO`, …
    pub default_action: String,
    /// Errno of the default action, if that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Architectures: `SCMP_ARCH_X86_64`, …; the native one is always included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// Flags: `SECCOMP_FILTER_FLAG_…`. An absent list is different from an empty one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Socket of the agent that handles `SCMP_ACT_NOTIFY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_path: Option<String>,
    /// Data that is sent to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_metadata: Option<String>,
    /// Rules of the filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub syscalls: Vec<SyscallRule>,
}

/// An entry of `linux.seccomp.syscalls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyscallRule {
    /// Names of system calls.
    pub names: Vec<String>,
    /// Action: `SCMP_ACT_ALLOW`, …
    pub action: String,
    /// Errno of the action, if that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// Conditions, all of which must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<SeccompArg>,
}

/// A condition on an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArg {
    /// Index of the argument, from 0.
    pub index: u32,
    /// Value with which the argument is compared; for `SCMP_CMP_MASKED_EQ` the mask.
    pub value: u64,
    /// For `SCMP_CMP_MASKED_EQ` the value with which the masked argument is compared.
    pub value_two: u64,
    /// Operator: `SCMP_CMP_EQ`, …
    pub op: String,
}
