//! Commands in containers of shims whose daemon was killed. Their FIFOs in the container's state directory name them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use tokio::time::timeout;

use super::connection::task;
use crate::{
    parts::Parts,
    store::{Container, identifier},
};

/// Beginning of the name of a FIFO of a command; its id and its stream follow.
const PREFIX: &str = "exec-";
/// How long the exit of a killed command is waited for.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the path of the FIFO for a stream of a command.
pub(crate) fn exec_path(directory: &Path, id: &str, stream: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{id}-{stream}"))
}

/// Commands that no client waits for.
pub(super) struct LeftoverExecs {
    ids: BTreeSet<String>,
    fifos: Vec<PathBuf>,
}

impl LeftoverExecs {
    /// Finds those of a container. Must be called before the first command of this daemon.
    pub(super) fn find(parts: &Parts, container: &Container) -> Self {
        let directory = parts.registry.records.directory(container.id());
        offload::in_place(|| Self::find_in(&directory))
    }

    fn find_in(directory: &Path) -> Self {
        let mut found = Self { ids: BTreeSet::new(), fifos: Vec::new() };
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('-')).map(|(id, _)| id);
            if let Some(id) = id.filter(|id| identifier::is_generated(id)) {
                found.ids.insert(id.to_owned());
                found.fifos.push(entry.path());
            }
        }
        found
    }

    /// Has the shim kill them, as the monitor kills those of a daemon that died, and removes their FIFOs.
    pub(super) async fn kill(self, container: &Arc<Container>) {
        if self.ids.is_empty() {
            return;
        }
        match task(container).await {
            Ok(task) => {
                for id in &self.ids {
                    if task.kill(id, Signal::KILL.as_raw(), true).await.is_ok() {
                        let _ = timeout(EXIT_TIMEOUT, task.wait(id)).await;
                    }
                    let _ = task.delete(id).await;
                }
            }
            Err(error) => tracing::debug!(container = container.id().as_str(), "{error}"),
        }
        offload::in_place(|| self.fifos.iter().for_each(|fifo| drop(fs::remove_file(fifo))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_fifos() {
        let directory = tempfile::tempdir().expect("a directory");
        let id = identifier::generate().expect("an id");
        for name in [exec_path(directory.path(), &id, "stdout"), exec_path(directory.path(), &id, "stdin")] {
            fs::write(name, "").expect("write");
        }
        for other in ["exec-", "exec-x-stdout", "stdout", "exec-../../x-stdin"] {
            let _ = fs::write(directory.path().join(other), "");
        }
        let found = LeftoverExecs::find_in(directory.path());
        assert_eq!(found.ids, BTreeSet::from([id]));
        assert_eq!(found.fifos.len(), 2);
    }
}
