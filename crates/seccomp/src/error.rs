/// Why a profile cannot be compiled, or bytes are no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A word of the profile is not of the runtime spec.
    #[error("linux.seccomp.{field}: {value:?} is not known; write one of {known}")]
    Unknown {
        /// Field of `linux.seccomp`.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may stand there.
        known: &'static str,
    },
    /// A value of the profile is out of bounds, or does not fit the others.
    #[error("linux.seccomp.{field}: {reason}")]
    Invalid {
        /// Field of `linux.seccomp`.
        field: &'static str,
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
