//! Files of the node that a container needs, its volumes and its log. They are opened before anything of the container
//! is created. They may be on a file system that hangs; only requests that need this file system wait for it then.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustix::fd::OwnedFd;

use super::volume;
use crate::{
    Error,
    container::selinux,
    parts::Parts,
    stdio::log_file::{self, LogFile},
    store::Container,
};

/// Less than the time that a request to stop the pod waits for the creation.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit with volumes to relabel, file by file; kubelet waits for two minutes.
const RELABEL_TIMEOUT: Duration = Duration::from_secs(100);
/// Limit while the daemon recovers, which no log may delay.
const RECOVERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Open volumes and the open log of a container.
#[derive(Debug, Default)]
pub(crate) struct PreopenedFiles {
    /// The volumes in the order of the request; `None` for an image and for a volume that was taken.
    volumes: Vec<Option<OwnedFd>>,
    pub(super) log: Option<LogFile>,
}

impl PreopenedFiles {
    /// Opens all volumes and the log.
    ///
    /// # Errors
    /// `InvalidArgument` for a volume that does not exist and cannot be created; `DeadlineExceeded` for a file system
    /// that hangs.
    pub(crate) async fn open(parts: &Parts, container: &Arc<Container>) -> Result<Self, Error> {
        let config = container.config();
        volume::check_mount_count(config, config.volumes.len())?;
        let mut paths: Vec<PathBuf> = config.volumes.iter().map(|volume| volume.host_path.clone()).collect();
        paths.extend(container.metadata.log_path.clone());
        let relabels = config.volumes.iter().any(|volume| volume.selinux_relabel);
        let (owned, node) = (Arc::clone(container), Arc::clone(&parts.node));
        let open = parts.node.host_files.visit(
            paths,
            if relabels { RELABEL_TIMEOUT } else { OPEN_TIMEOUT },
            move |progress| {
                let config = owned.config();
                let label = selinux::labels(&config.security).map(|labels| labels.file);
                let mut volumes = Vec::with_capacity(config.volumes.len());
                for (index, volume) in config.volumes.iter().enumerate() {
                    progress.at(index)?;
                    if volume.image.is_some() {
                        volumes.push(None);
                        continue;
                    }
                    // Opened before it is labelled, because that creates a missing directory.
                    volumes.push(Some(volume::open(volume)?));
                    let mut label = label.iter().filter(|_| volume.selinux_relabel);
                    label.try_for_each(|label| selinux::relabel(&volume.host_path, label))?;
                }
                progress.at(config.volumes.len())?;
                let log = log_file::open_log(&node.config, &owned.metadata)?;
                Ok(Self { volumes, log })
            },
        );
        open.await
    }

    /// Returns the volume of this index in the request; each one only once.
    pub(super) fn take_volume(&mut self, index: usize) -> Result<OwnedFd, Error> {
        let volume = self.volumes.get_mut(index).and_then(Option::take);
        volume.ok_or_else(|| Error::internal("a volume was not opened"))
    }
}

/// Opens the log of a container again.
pub(crate) async fn open_log(parts: &Parts, container: &Arc<Container>) -> Result<Option<LogFile>, Error> {
    let (owned, node) = (Arc::clone(container), Arc::clone(&parts.node));
    let paths = container.metadata.log_path.iter().cloned().collect();
    parts.node.host_files.visit(paths, OPEN_TIMEOUT, move |_| log_file::open_log(&node.config, &owned.metadata)).await
}

/// Like [`open_log`], for recovery: of all containers with logs on a file system that hangs, only the first one waits a
/// moment; the others fail at once.
pub(crate) async fn open_log_at_once(parts: &Parts, container: &Arc<Container>) -> Result<Option<LogFile>, Error> {
    let (owned, node) = (Arc::clone(container), Arc::clone(&parts.node));
    let paths = container.metadata.log_path.iter().cloned().collect();
    parts
        .node
        .host_files
        .try_visit(paths, RECOVERY_TIMEOUT, move |_| log_file::open_log(&node.config, &owned.metadata))
        .await
}
