//! Watches directories with inotify(7) for changed, replaced and linked files.

use std::{io, path::PathBuf, time::Duration};

use rustix::{
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use tokio::{io::unix::AsyncFd, time::timeout};

/// A change is reported after no other change followed for this time, because editors and copies write in several
/// steps.
const QUIET: Duration = Duration::from_millis(200);
/// Number of such periods after which a change is reported even if others follow.
const STEPS_MAX: u32 = 25;

/// A watch on several directories.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Watches these directories. One that does not exist is ignored. Must be called within a runtime.
    pub(crate) fn new(directories: &[PathBuf]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for directory in directories {
            match inotify::add_watch(&inotify, directory, flags) {
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        #[expect(
            deprecated,
            reason = "its replacement requires unsafe code, which this crate forbids; AsyncFd owns the descriptor"
        )]
        Ok(Self { inotify: AsyncFd::new(inotify)? })
    }

    /// Waits until something changed and no further change followed for [`QUIET`].
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        self.event().await?;
        for _ in 0..STEPS_MAX {
            match timeout(QUIET, self.event()).await {
                Ok(more) => more?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    async fn event(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable_mut().await?;
            match rustix::io::read(ready.get_inner(), &mut [0u8; 4096]) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[tokio::test]
    async fn changes_of_files_and_links_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let mut watch = Watch::new(&[dir.path().to_owned(), path("not-there")]).expect("inotify");
        fs::write(path("a"), "1").expect("written");
        watch.changed().await.expect("reported");
        fs::write(path("b"), "2").expect("written");
        fs::rename(path("b"), path("a")).expect("renamed");
        watch.changed().await.expect("reported");
        symlink("a", path("l")).expect("linked");
        watch.changed().await.expect("reported");
        fs::remove_file(path("a")).expect("removed");
        watch.changed().await.expect("reported");
    }
}
