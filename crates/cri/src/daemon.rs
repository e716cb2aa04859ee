use std::{future::Future, path::PathBuf, pin::Pin};

use serde_json::Value;

/// A response that becomes available later. The error is a message for users.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// The program that runs the engine, as the service `pinion.v1` needs it.
pub trait Daemon: Send + Sync + 'static {
    /// Returns facts about the daemon for `Info` and the verbose `Status`: paths, configuration files, the last reload.
    fn facts(&self) -> Value;

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
