use serde::{Deserialize, Serialize};

/// A command of a runtime that the monitor runs as its own child, and whose output is the reply: `start` and `delete` of a
/// containerd shim. What the command leaves running becomes a child of the monitor, which is a subreaper.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeCommand {
    /// The operation and its object, for messages: `start the shim of container …`.
    pub operation: String,
    /// Absolute path of the program in the mount namespace of the command, and its arguments.
    pub arguments: Vec<String>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<String>,
    /// Absolute path of its working directory.
    pub directory: String,
    /// Time limit in seconds.
    pub timeout: u32,
}

impl RuntimeCommand {
    /// Maximum number of bytes of standard output, and of standard error. A command that writes more gets `EPERM`.
    pub const OUTPUT_MAX: usize = 64 << 10;
}
