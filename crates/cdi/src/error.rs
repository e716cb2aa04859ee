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
