//! `CheckpointContainer`: a running container's state in one archive, for a look at it elsewhere (KEP-2008). It goes on
//! running, also when the checkpoint fails.
//!
//! ```text
//! criu check ─▶ criu dump --leave-running ─▶ the changes of its root ─▶ archive beside the location ─▶ rename
//!  checkpoint/criu.rs   checkpoint/outside.rs      checkpoint/changes.rs        checkpoint/archive.rs
//! ```
//! The archive has what `checkpointctl` and the other engines know: `config.dump`, `spec.dump`, `status.dump`,
//! `checkpoint/` (CRIU's images), `rootfs-diff.tar`, `deleted.files`, `container.log`, `dump.log`, `stats-dump`.

mod archive;
mod attempt;
mod changes;
mod criu;
mod outside;

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attempt::Attempt;

use super::{Container, ContainerPhase};
use crate::{
    Engine, Error, ErrorKind,
    engine::{Inner, blocking, detached},
    error::failed,
};

/// Where CRIU writes before the archive is made, below the durable directory: it may be as large as the container's
/// memory.
const DIRECTORY: &str = "checkpoint";
/// For a caller that names no time.
const DEFAULT: Duration = Duration::from_secs(600);
/// How long the end of a checkpoint waits for its files to be removed; the removal itself takes as long as it takes.
const CLEAN: Duration = Duration::from_secs(30);

impl Engine {
    /// Writes the state of a running container into the archive `location`, which must be absolute and not be there
    /// yet. `timeout` zero: ten minutes.
    ///
    /// # Errors
    /// `FailedPrecondition` where CRIU is missing or cannot work with this kernel or this container, with its reason;
    /// `DeadlineExceeded`. The container runs on, and nothing is left.
    pub async fn checkpoint_container(&self, id: &str, location: &Path, timeout: Duration) -> Result<(), Error> {
        let (engine, container) = (Arc::clone(&self.0), self.0.container(id)?);
        let location = location.to_owned();
        let timeout = if timeout.is_zero() { DEFAULT } else { timeout };
        let told = format!("checkpoint container {}", container.id());
        detached(async move {
            // Neither stopped nor removed meanwhile, and no second checkpoint of it.
            let _alone = container.busy.lock().await;
            if container.record().phase != ContainerPhase::Running {
                return Err(Error::state("it does not run").during(told));
            }
            let job = Job::new(&engine, &container, location).map_err(|e| e.during(&told))?;
            let done = tokio::time::timeout(timeout, job.run()).await;
            let done = done.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::DeadlineExceeded, format!("not done after {} s", timeout.as_secs())))
            });
            if done.is_err() {
                job.attempt.give_up();
                job.thaw().await;
            }
            // Work that hangs on a dead file system must not keep the container locked.
            let _ = tokio::time::timeout(CLEAN, job.clean()).await;
            done.map_err(|e| e.during(told))
        })
        .await
    }
}

/// One checkpoint under way.
struct Job<'a> {
    engine: &'a Arc<Inner>,
    container: &'a Arc<Container>,
    attempt: Arc<Attempt>,
}

impl<'a> Job<'a> {
    fn new(engine: &'a Arc<Inner>, container: &'a Arc<Container>, location: PathBuf) -> Result<Self, Error> {
        let attempts = engine.config.data_dir.join(DIRECTORY).join(container.id());
        Ok(Self { engine, container, attempt: Attempt::new(&attempts, location)? })
    }

    async fn run(&self) -> Result<(), Error> {
        let images = self.attempt.directory.join("checkpoint");
        let (at, attempt) = (images.clone(), Arc::clone(&self.attempt));
        let program = blocking(move || {
            check_location(&attempt.location)?;
            let program = criu::find()?;
            attempt.remove_others()?;
            let created = DirBuilder::new().recursive(true).mode(0o700).create(&at);
            created.map_err(failed(format_args!("create {}", at.display())))?;
            Ok(program)
        });
        let program = program.await?;
        criu::check(&program).await?;
        let pid = self.container.record().pid;
        let (engine, container) = (Arc::clone(self.engine), Arc::clone(self.container));
        let outside = blocking(move || {
            let spec = container.spec(&engine.records)?;
            Ok((outside::externals(&spec, pid)?, outside::freezer(&container.metadata.cgroup)))
        });
        let (externals, freezer) = outside.await?;
        criu::dump(&program, &criu::Dump { pid, images: &images, work: &self.attempt.directory, externals, freezer })
            .await?;
        let (engine, container) = (Arc::clone(self.engine), Arc::clone(self.container));
        let attempt = Arc::clone(&self.attempt);
        blocking(move || {
            syscall::scheduling::run_as_others(|| {
                changes::write(&engine, &container, &attempt)?;
                archive::write(&engine, &container, &attempt)
            })
        })
        .await
    }

    /// A CRIU that was killed may have left the group frozen.
    async fn thaw(&self) {
        let (engine, container) = (Arc::clone(self.engine), Arc::clone(self.container));
        let thawed = blocking(move || container.group(&engine)?.thaw().map_err(failed("let it go on")));
        if let Err(error) = thawed.await {
            tracing::warn!("after the checkpoint of container {}: {error}", self.container.id());
        }
    }

    async fn clean(&self) {
        let attempt = Arc::clone(&self.attempt);
        if let Err(error) = blocking(move || syscall::scheduling::run_as_others(|| attempt.clean())).await {
            tracing::warn!("after the checkpoint of container {}: {error}", self.container.id());
        }
    }
}

/// The archive is a new file in a directory that is there.
fn check_location(location: &Path) -> Result<(), Error> {
    let directory = location.parent().filter(|_| location.is_absolute() && location.file_name().is_some());
    let directory =
        directory.ok_or_else(|| Error::invalid(format!("location: {location:?} is not an absolute path")))?;
    if !directory.is_dir() {
        return Err(Error::invalid(format!("location: {} is no directory; create it first", directory.display())));
    }
    if location.symlink_metadata().is_ok() {
        return Err(Error::invalid(format!("location: {} is there already", location.display())));
    }
    Ok(())
}
