/// The number of names of a rule in an error message; rules may have hundreds.
const NAMES_SHOWN: usize = 3;

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The profile is invalid; the caller must change it.
    Invalid,
    /// The filter is longer than the kernel accepts.
    TooLong,
    /// The bytes are not a compiled program.
    Malformed,
}

/// Why a profile cannot be compiled, or bytes are not a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name in the profile is not defined by the runtime spec.
    #[error("linux.seccomp.{field}: unknown value {value:?}; use one of {known}")]
    Unknown {
        /// The field of `linux.seccomp`, and the calls of its rule.
        field: String,
        /// The value.
        value: String,
        /// The valid values.
        known: &'static str,
    },
    /// A value of the profile is out of bounds, or conflicts with others.
    #[error("linux.seccomp.{field}: {reason}")]
    Invalid {
        /// The field of `linux.seccomp`, and the calls of its rule.
        field: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The filter has more than 4096 instructions (`BPF_MAXINSNS`).
    #[error("linux.seccomp: the filter has {0} instructions, more than 4096; use fewer rules with arguments")]
    TooLong(usize),
    /// The bytes are not the result of [`crate::Program::to_bytes`].
    #[error("compiled seccomp filter: {0}")]
    Malformed(&'static str),
}

impl Error {
    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } | Self::Invalid { .. } => ErrorKind::Invalid,
            Self::TooLong(_) => ErrorKind::TooLong,
            Self::Malformed(_) => ErrorKind::Malformed,
        }
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "load a compiled filter",
            _ => "compile a profile",
        }
    }

    /// Returns the field of `linux.seccomp` that the error is about.
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::Unknown { field, .. } | Self::Invalid { field, .. } => Some(field),
            Self::TooLong(_) | Self::Malformed(_) => None,
        }
    }

    /// Adds the rule to the field name.
    pub(crate) fn in_rule(mut self, index: usize, names: &[String]) -> Self {
        if let Self::Unknown { field, .. } | Self::Invalid { field, .. } = &mut self {
            let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
            let names: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| name.escape_debug().to_string()).collect();
            *field = format!("syscalls[{index}].{field} (rule for {}{more})", names.join(", "));
        }
        self
    }
}
