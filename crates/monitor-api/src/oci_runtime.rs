use serde::{Deserialize, Serialize};

/// Name of the directory in the bundle that holds the mounts and namespaces of a container while it is created. It is
/// empty on the node: the monitor mounts a tmpfs there, in a mount namespace of its own.
///
/// Mount N of the spec is `mount-N`, the namespace of type T is `namespace-T` (the type as in the specification). The
/// root of the container is `rootfs`, in the bundle itself.
pub const PRIVATE: &str = "private";

/// Name of the file in the bundle that all processes of `create` lock while they run (flock(2)). It contains the pid of
/// the command, which is the id of its session, a space, its start time in clock ticks since boot (since contract 1.8; 0 if
/// it is unknown), and a newline.
///
/// The init process of a container that is not started may hold the lock, too: with crun and youki it inherits the
/// descriptor. So the other commands have files of their own.
pub const CREATE_LOCK: &str = "command";
/// Like [`CREATE_LOCK`], for `start`.
pub const START_LOCK: &str = "command-start";
/// Like [`CREATE_LOCK`], for `delete`.
pub const DELETE_LOCK: &str = "command-delete";

/// An OCI runtime with the command line of runc, and what its commands need to know of one container.
///
/// The monitor runs `<arguments> --log <file> --log-format json create --bundle <bundle> --pid-file <bundle>/pid <id>`,
/// `… start <id>`, `… delete <id>` and `… delete --force <id>` as its own children, in the mount namespace of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciRuntime {
    /// Absolute path of the program on the node, and its global options.
    pub arguments: Vec<String>,
    /// Environment of its commands, `NAME=value`.
    pub environment: Vec<String>,
    /// Absolute path of the bundle directory on the node. It contains `config.json`, and the empty directories `rootfs`
    /// and [`PRIVATE`].
    pub bundle: String,
    /// Time limit of one command, in seconds.
    pub timeout: u32,
}
