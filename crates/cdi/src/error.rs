/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The name is invalid; the caller must change it.
    Invalid,
    /// No file defines the device.
    NotFound,
    /// Several files define the device.
    Conflict,
}

/// Why a device cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name is not a fully-qualified device name.
    #[error("{name:?} is not a CDI device such as vendor.com/class=name: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// No file defines the device.
    #[error("CDI device {name} is not known: {reason}")]
    Unknown {
        /// The fully-qualified name.
        name: String,
        /// The directories that were searched, and a possible cause.
        reason: String,
    },
    /// Several files of one directory define the device.
    #[error("CDI device {name} is defined more than once, in {}; remove it from all but one of them", files.join(" and "))]
    Conflict {
        /// The fully-qualified name.
        name: String,
        /// The files that define it.
        files: Vec<String>,
    },
}

impl Error {
    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } => ErrorKind::Invalid,
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Conflict { .. } => ErrorKind::Conflict,
        }
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        "resolve CDI device"
    }

    /// Returns the name of the device.
    pub fn object(&self) -> &str {
        let (Self::Name { name, .. } | Self::Unknown { name, .. } | Self::Conflict { name, .. }) = self;
        name
    }
}
