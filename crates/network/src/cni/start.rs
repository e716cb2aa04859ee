//! Finding and starting a plugin's program. The directories of plugins may be on a file server that is gone, so both
//! are done on a thread that may block, and no more than a few at once: such a thread cannot be interrupted.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Weak},
};

use tokio::{
    process::{Child, Command},
    sync::Semaphore,
};

use super::exec::{About, Programs};

/// Threads that look for or start a program at once.
const STARTS_MAX: usize = 8;

/// The turns of those threads.
#[derive(Clone, Debug)]
pub(crate) struct Starts(Arc<Semaphore>);

impl Default for Starts {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STARTS_MAX)))
    }
}

impl Programs {
    /// A plugin's program. Blocks as long as a directory of plugins does not answer.
    pub(crate) fn find(&self, kind: &str) -> Result<PathBuf, String> {
        let found = self.directories.iter().map(|directory| directory.join(kind)).find(|path| path.is_file());
        found.ok_or_else(|| format!("no such program in {}; install it there", self.directory_names()))
    }

    /// For messages.
    pub(super) fn directory_names(&self) -> String {
        self.directories.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Finds and starts a program. What is started after this was dropped is killed at once, before it can read its
    /// configuration.
    pub(super) async fn start(&self, command: &'static str, kind: &str, about: &About<'_>) -> Result<Child, String> {
        let turn = Arc::clone(&self.starts.0).acquire_owned().await.map_err(|e| e.to_string())?;
        let environment = about.environment.clone();
        let paths = std::env::join_paths(&self.directories).map_err(|e| e.to_string())?;
        let (programs, kind) = (self.clone(), kind.to_owned());
        let waiting = Arc::new(());
        let is_waited_for: Weak<()> = Arc::downgrade(&waiting);
        let spawn = move || {
            let _turn = turn;
            let program = programs.find(&kind)?;
            if is_waited_for.strong_count() == 0 {
                return Err("nobody waits for it any longer".to_owned());
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
                // It returns when the program was read from its disk.
                .spawn();
            spawned.map_err(|e| format!("{}: {e}", program.display()))
        };
        let spawned = tokio::task::spawn_blocking(spawn).await;
        drop(waiting);
        spawned.unwrap_or_else(|bug| Err(bug.to_string()))
    }
}
