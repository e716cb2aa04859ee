/// Why there is no such device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no full name.
    #[error("{name:?} is not a CDI device such as vendor.com/class=name: {why}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No file has it.
    #[error("CDI device {name} is not known: {why}")]
    Unknown {
        /// Its full name.
        name: String,
        /// Where it was looked for, and what may be the reason.
        why: String,
    },
    /// Several files of one directory have it.
    #[error("CDI device {name} is described twice, in {}; remove it from one of them", files.join(" and "))]
    Conflict {
        /// Its full name.
        name: String,
        /// The files.
        files: Vec<String>,
    },
}
