use std::{future::Future, path::PathBuf, pin::Pin};

use serde_json::Value;

/// An answer that comes later; the error is a sentence for people.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// The program around the engine: what people's command line asks of it.
pub trait Daemon: Send + Sync + 'static {
    /// What it tells of itself, for `Info` and the verbose `Status`: paths, configuration files, the last reload.
    fn facts(&self) -> Value;

    /// The configuration that holds, as TOML; with `origin` each line says which file it is from.
    ///
    /// # Errors
    /// It cannot be written as TOML.
    fn config(&self, origin: bool) -> Result<String, String>;

    /// Takes up the configuration's files as they are now, wholly or not at all. Gives the keys that changed.
    ///
    /// # Errors
    /// A file is wrong, or something in it needs a restart; nothing was changed.
    fn reload(&self) -> Pending<Vec<String>>;

    /// The monitor program that is installed.
    ///
    /// # Errors
    /// There is none.
    fn monitor(&self) -> Result<PathBuf, String>;

    /// Begins to give way to the program that is installed, once requests that run are answered.
    ///
    /// # Errors
    /// That program could not run with this configuration; nothing was changed.
    fn upgrade(&self) -> Pending<()>;
}
