//! `CheckpointContainer`: writes the state of a running container into one archive, for analysis elsewhere (KEP-2008).
//! The container keeps running, even if the checkpoint fails.
//!
//! ```text
//! criu check ─▶ criu dump --leave-running ─▶ changes of its root ─▶ archive next to the location ─▶ rename
//!  checkpoint/criu.rs  checkpoint/external.rs   checkpoint/changes.rs       checkpoint/archive.rs
//! ```
//! The archive has the layout that `checkpointctl` and other engines use: `config.dump`, `spec.dump`, `status.dump`,
//! `checkpoint/` (CRIU's images), `rootfs-diff.tar`, `deleted.files`, `container.log`, `dump.log`, `stats-dump`.

mod archive;
mod attempt;
mod changes;
mod criu;
mod external;

pub(crate) use changes::write_layer;

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    Error, ErrorKind,
    error::failed,
    operation::{blocking, to_completion},
    parts::Parts,
    store::{Container, ContainerPhase},
};
use attempt::Attempt;

/// Directory below the data directory that CRIU writes to before the archive is created: its files may be as large as
/// the container's memory.
const DIRECTORY: &str = "checkpoint";
/// Time limit of a request without one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a checkpoint waits at its end for the removal of its files; the removal itself has no time limit.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes the state of a running container into the archive `location`, an absolute path that must not exist yet.
/// `timeout` zero means ten minutes.
pub(crate) async fn checkpoint(parts: &Arc<Parts>, id: &str, location: &Path, timeout: Duration) -> Result<(), Error> {
    let (parts, container) = (Arc::clone(parts), parts.registry.container(id)?);
    let location = location.to_owned();
    let timeout = if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout };
    let operation = format!("checkpoint container {}", container.id());
    to_completion(async move {
        // No stop, removal or second checkpoint may run at the same time.
        let _busy = container.busy.lock().await;
        if container.record().phase != ContainerPhase::Running {
            return Err(Error::state("the container is not running").during(operation));
        }
        let metadata = &container.metadata;
        let handler = metadata.runtime.as_ref().map(|runtime| &runtime.handler);
        if let Some(handler) = handler.or(metadata.shim.as_ref().map(|shim| &shim.handler)) {
            let reason = format!("runtime handler {:?} does not support checkpoints", handler);
            return Err(Error::state(reason).during(operation));
        }
        let job = Job::new(&parts, &container, location).map_err(|e| e.during(&operation))?;
        let outcome = tokio::time::timeout(timeout, job.run()).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::DeadlineExceeded, format!("timed out after {} s", timeout.as_secs())))
        });
        if outcome.is_err() {
            job.attempt.abandon();
            job.thaw().await;
        }
        // Cleanup that hangs on a dead file system must not keep the container locked.
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, job.clean()).await;
        outcome.map_err(|e| e.during(operation))
    })
    .await
}

/// A checkpoint in progress.
struct Job<'a> {
    parts: &'a Arc<Parts>,
    container: &'a Arc<Container>,
    attempt: Arc<Attempt>,
}

impl<'a> Job<'a> {
    fn new(parts: &'a Arc<Parts>, container: &'a Arc<Container>, location: PathBuf) -> Result<Self, Error> {
        let attempts = parts.node.config.data_dir.join(DIRECTORY).join(container.id().as_str());
        Ok(Self { parts, container, attempt: Attempt::new(&attempts, location)? })
    }

    async fn run(&self) -> Result<(), Error> {
        let images = self.attempt.directory.join("checkpoint");
        let (directory, attempt) = (images.clone(), Arc::clone(&self.attempt));
        let program = blocking(move || {
            check_location(&attempt.location)?;
            let program = criu::find()?;
            attempt.remove_others()?;
            let created = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            created.map_err(failed(format_args!("create {}", directory.display())))?;
            Ok(program)
        });
        let program = program.await?;
        criu::check(&program).await?;
        let pid = self.container.record().pid;
        let (parts, container) = (Arc::clone(self.parts), Arc::clone(self.container));
        let external = blocking(move || {
            let spec = container.spec(&parts.registry.records)?;
            Ok((external::externals(&spec, pid)?, external::freezer(&container.cgroup())))
        });
        let (externals, freezer) = external.await?;
        criu::dump(&program, &criu::Dump { pid, images: &images, work: &self.attempt.directory, externals, freezer })
            .await?;
        let (parts, container) = (Arc::clone(self.parts), Arc::clone(self.container));
        let attempt = Arc::clone(&self.attempt);
        blocking(move || {
            syscall::scheduling::with_default_nice(|| {
                changes::write(&parts, &container, &attempt)?;
                archive::write(&parts, &container, &attempt)
            })
        })
        .await
    }

    /// Thaws the container's cgroup, which a killed CRIU may have left frozen.
    async fn thaw(&self) {
        let (parts, container) = (Arc::clone(self.parts), Arc::clone(self.container));
        let thawed = blocking(move || container.group(&parts.node.trees)?.thaw().map_err(failed("thaw its cgroup")));
        if let Err(error) = thawed.await {
            tracing::warn!(container = self.container.id().as_str(), "clean up after a failed checkpoint: {error}");
        }
    }

    async fn clean(&self) {
        let attempt = Arc::clone(&self.attempt);
        if let Err(error) = blocking(move || syscall::scheduling::with_default_nice(|| attempt.clean())).await {
            tracing::warn!(container = self.container.id().as_str(), "clean up after a failed checkpoint: {error}");
        }
    }
}

/// Checks that the archive would be a new file in an existing directory.
fn check_location(location: &Path) -> Result<(), Error> {
    let directory = location.parent().filter(|_| location.is_absolute() && location.file_name().is_some());
    let directory =
        directory.ok_or_else(|| Error::invalid(format!("location: {location:?} is not an absolute path")))?;
    if !directory.is_dir() {
        return Err(Error::invalid(format!("location: {} is not a directory; create it first", directory.display())));
    }
    if location.symlink_metadata().is_ok() {
        return Err(Error::invalid(format!(
            "location: {} exists already; choose another path or remove it",
            location.display()
        )));
    }
    Ok(())
}
