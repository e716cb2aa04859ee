//! The plugin programs: finds and starts them. The plugin directories may be on a file server that does not respond, so
//! both happen on a blocking thread. The number of these threads is limited, because they cannot be interrupted.

use std::{
    io::ErrorKind,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    sync::Semaphore,
};

use cni_plugins::{Announcer, NftSocket};

use super::Progress;
use crate::Metrics;

/// Maximum number of threads that look for or start a program at the same time.
const STARTS_MAX: usize = 8;

/// Timeouts of one plugin call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Timeout of `ADD`: some plugins wait for a controller of their cluster.
    pub(crate) add: Duration,
    /// Timeout of `CHECK`.
    pub(crate) check: Duration,
    /// Timeout of `GC`, which pods that are attached or detached wait for.
    pub(crate) collect: Duration,
    /// Timeout of every other command.
    pub(crate) other: Duration,
    /// How long a pod waits for a program that is missing for its `DEL`: an upgrade of the plugin may replace it.
    pub(crate) missing: Duration,
}

/// Directories of plugin programs, timeouts, and the calls in progress.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) start_limit: StartLimit,
    /// What types that run in this process use.
    pub(crate) nft: NftSocket,
    /// Announces addresses of pods, for types that run in this process.
    pub(crate) announcer: Announcer,
}

/// Environment and sandbox of one run of a plugin.
#[derive(Default)]
pub(super) struct Invocation<'a> {
    pub(super) environment: Vec<(&'static str, std::ffi::OsString)>,
    pub(super) sandbox: Option<&'a str>,
    /// Whether the pod was attached by the plugin's program, which may keep state of its own.
    pub(super) is_of_program: bool,
    /// The pod's namespace, if its path may be gone.
    pub(super) namespace: Option<&'a netns::Namespace>,
}

/// Why a program could not be started.
pub(super) enum StartError {
    /// No plugin directory has it.
    Missing,
    /// Any other failure.
    Other(String),
}

/// Limits the number of threads that look for or start a program.
#[derive(Clone, Debug)]
pub(crate) struct StartLimit(Arc<Semaphore>);

impl Default for StartLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STARTS_MAX)))
    }
}

impl Programs {
    /// Returns the path of a plugin's program; `None` only if no directory has it. Blocks while the file system of a
    /// plugin directory does not respond.
    pub(crate) fn find(&self, kind: &str) -> Result<Option<PathBuf>, String> {
        let mut unreadable = None;
        for path in self.directories.iter().map(|directory| directory.join(kind)) {
            match std::fs::metadata(&path) {
                Ok(found) if found.is_file() => return Ok(Some(path)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => unreadable = Some(format!("look for {}: {error}", path.display())),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Returns the plugin directories as text for messages.
    pub(crate) fn directory_names(&self) -> String {
        self.directories.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Finds and starts a program. If the future is dropped first, a program that starts afterwards is killed at once,
    /// before it can read its configuration.
    pub(super) async fn start(
        &self,
        command: &'static str,
        kind: &str,
        invocation: &Invocation<'_>,
    ) -> Result<Child, StartError> {
        let other = |error: &dyn std::fmt::Display| StartError::Other(error.to_string());
        let permit = Arc::clone(&self.start_limit.0).acquire_owned().await.map_err(|e| other(&e))?;
        let environment = invocation.environment.clone();
        let paths = std::env::join_paths(&self.directories).map_err(|e| other(&e))?;
        let (programs, kind) = (self.clone(), kind.to_owned());
        let waiting = Arc::new(());
        let caller: Weak<()> = Arc::downgrade(&waiting);
        let spawn = move || {
            let _permit = permit;
            let program = programs.find(&kind).map_err(StartError::Other)?.ok_or(StartError::Missing)?;
            if caller.strong_count() == 0 {
                return Err(StartError::Other("cancelled before its program was started".to_owned()));
            }
            let spawned = Command::new(&program)
                .env("CNI_COMMAND", command)
                .env("CNI_PATH", paths)
                .envs(environment)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true)
                // `spawn` returns after execve, that is, after the program was read from its disk.
                .spawn();
            spawned.map_err(|e| StartError::Other(format!("{}: {e}", program.display())))
        };
        let spawned = offload::blocking(spawn).await;
        drop(waiting);
        spawned.unwrap_or_else(|bug| Err(StartError::Other(bug.to_string())))
    }
}
