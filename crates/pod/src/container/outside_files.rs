//! What a container gets of the node's files: its volumes and its log, opened before anything of it is made. They may
//! be on a file system that hangs, and then only those wait that need it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustix::fd::OwnedFd;

use super::{Container, log_file, prepare, selinux, volume};
use crate::{Error, engine::Inner};

/// Less than who stops the pod meanwhile waits for.
const OPEN: Duration = Duration::from_secs(30);
/// With volumes whose files are labelled, one by one; kubelet waits for two minutes.
const RELABEL: Duration = Duration::from_secs(100);
/// When the daemon comes back nobody must wait for a log.
const AT_ONCE: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OutsideFiles {
    /// As in the request; none for an image, and none once it is taken.
    volumes: Vec<Option<OwnedFd>>,
    pub(super) log: Option<OwnedFd>,
}

impl OutsideFiles {
    /// Opens all.
    ///
    /// # Errors
    /// `InvalidArgument` for a volume that is not there and cannot be made; `DeadlineExceeded` for a file system that
    /// hangs.
    pub(super) async fn open(engine: &Inner, container: &Arc<Container>) -> Result<Self, Error> {
        let config = container.config();
        prepare::within_bounds(config, config.volumes.len())?;
        let mut paths: Vec<PathBuf> = config.volumes.iter().map(|volume| volume.host_path.clone()).collect();
        paths.extend(container.metadata.log_path.clone());
        let relabels = config.volumes.iter().any(|volume| volume.selinux_relabel);
        let of = Arc::clone(container);
        let open = engine.host_files.visit(paths, if relabels { RELABEL } else { OPEN }, move |progress| {
            let config = of.config();
            let label = selinux::labels(&config.security).map(|labels| labels.file);
            let mut volumes = Vec::with_capacity(config.volumes.len());
            for (index, volume) in config.volumes.iter().enumerate() {
                progress.at(index)?;
                if volume.image.is_some() {
                    volumes.push(None);
                    continue;
                }
                // First, as it makes what is not there.
                volumes.push(Some(volume::open(volume)?));
                let mut label = label.iter().filter(|_| volume.selinux_relabel);
                label.try_for_each(|label| selinux::relabel(&volume.host_path, label))?;
            }
            progress.at(config.volumes.len())?;
            let log = log_file::open_log(&of.metadata)?;
            Ok(Self { volumes, log })
        });
        open.await
    }

    /// The volume of this index in the request, once.
    pub(super) fn take_volume(&mut self, index: usize) -> Result<OwnedFd, Error> {
        let volume = self.volumes.get_mut(index).and_then(Option::take);
        volume.ok_or_else(|| Error::internal("a volume was not opened"))
    }
}

/// Opens the log again.
pub(crate) async fn open_log(engine: &Inner, container: &Arc<Container>) -> Result<Option<OwnedFd>, Error> {
    let of = Arc::clone(container);
    let paths = container.metadata.log_path.iter().cloned().collect();
    engine.host_files.visit(paths, OPEN, move |_| log_file::open_log(&of.metadata)).await
}

/// The same, where a file system that hangs is an error for all but the first within moments.
pub(crate) async fn open_log_at_once(engine: &Inner, container: &Arc<Container>) -> Result<Option<OwnedFd>, Error> {
    let of = Arc::clone(container);
    let paths = container.metadata.log_path.iter().cloned().collect();
    engine.host_files.try_visit(paths, AT_ONCE, move |_| log_file::open_log(&of.metadata)).await
}
