/// Rules may have hundreds of names: so many are told.
const NAMES_TOLD: usize = 3;

/// Why a profile cannot be compiled, or bytes are no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A word of the profile is not of the runtime spec.
    #[error("linux.seccomp.{field}: {value:?} is not known; write one of {known}")]
    Unknown {
        /// Field of `linux.seccomp`, and the calls of the rule it is in.
        field: String,
        /// What stands there.
        value: String,
        /// What may stand there.
        known: &'static str,
    },
    /// A value of the profile is out of bounds, or does not fit the others.
    #[error("linux.seccomp.{field}: {reason}")]
    Invalid {
        /// Field of `linux.seccomp`, and the calls of the rule it is in.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// The kernel takes 4096 instructions (`BPF_MAXINSNS`).
    #[error("linux.seccomp: the filter has {0} instructions, the kernel takes 4096; use fewer rules with arguments")]
    TooLong(usize),
    /// Not what [`crate::Program::to_bytes`] wrote.
    #[error("compiled seccomp filter: {0}")]
    Malformed(&'static str),
}

impl Error {
    /// The same, of a field within this rule.
    pub(crate) fn of_rule(mut self, index: usize, names: &[String]) -> Self {
        if let Self::Unknown { field, .. } | Self::Invalid { field, .. } = &mut self {
            let more = if names.len() > NAMES_TOLD { ", …" } else { "" };
            let names: Vec<_> = names.iter().take(NAMES_TOLD).map(|name| name.escape_debug().to_string()).collect();
            *field = format!("syscalls[{index}].{field} (rule for {}{more})", names.join(", "));
        }
        self
    }
}
