use std::{future::Future, path::PathBuf, pin::Pin};

/// A response that becomes available later. The error is a message for users.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// Facts about the program that runs the engine. Times are in seconds since the epoch.
#[derive(Clone, Debug)]
pub struct DaemonFacts {
    /// Path of its socket.
    pub socket: PathBuf,
    /// The state directory of its configuration.
    pub state_dir: PathBuf,
    /// The data directory of its configuration.
    pub data_dir: PathBuf,
    /// The cgroup of all pods.
    pub cgroup_parent: String,
    /// The configuration files that were read, in order.
    pub configuration_files: Vec<PathBuf>,
    /// Since when the configuration has been active.
    pub configuration_since: u64,
    /// Number of reloads that changed the configuration.
    pub reloads: u64,
    /// Error and time of the last reload, if it was refused.
    pub refused: Option<(String, u64)>,
}

/// The program that runs the engine, as the service `pinion.v1` needs it.
pub trait Daemon: Send + Sync + 'static {
    /// Returns facts about the daemon for `Info` and the verbose `Status`.
    fn facts(&self) -> DaemonFacts;

    /// Returns the active configuration as TOML. With `origin`, a comment on each line names the file it is from.
    ///
    /// # Errors
    /// When it cannot be serialized as TOML.
    fn config(&self, origin: bool) -> Result<String, String>;

    /// Reloads the configuration files, completely or not at all. Returns the keys that changed.
    ///
    /// # Errors
    /// When a file is invalid, or a change requires a restart; nothing was changed.
    fn reload(&self) -> Pending<Vec<String>>;

    /// Returns the path of the installed monitor program.
    ///
    /// # Errors
    /// When it is not installed.
    fn monitor(&self) -> Result<PathBuf, String>;

    /// Starts the handover to the installed program, which happens after the running requests are done.
    ///
    /// # Errors
    /// When that program cannot run with this configuration; nothing was changed.
    fn upgrade(&self) -> Pending<()>;
}
