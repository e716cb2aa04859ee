//! Changes in directories, by inotify(7): of files, of what replaces them, of links to them.

use std::{io, path::PathBuf, time::Duration};

use rustix::{
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use tokio::{io::unix::AsyncFd, time::timeout};

/// A change counts once nothing followed it for so long: editors and copies write in steps.
const QUIET: Duration = Duration::from_millis(200);
/// After so long it counts all the same.
const STEPS_MAX: u32 = 25;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Of these directories; one that is not there is left out. Must be called within a runtime.
    pub(crate) fn of(directories: &[PathBuf]) -> io::Result<Self> {
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
            reason = "its successor is unsafe code, which this crate has none of; it owns its descriptor"
        )]
        Ok(Self { inotify: AsyncFd::new(inotify)? })
    }

    /// Resolves after something changed and came to rest.
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
    async fn files_links_and_what_replaces_them_are_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let mut watch = Watch::of(&[dir.path().to_owned(), path("not-there")]).expect("inotify");
        fs::write(path("a"), "1").expect("written");
        watch.changed().await.expect("seen");
        fs::write(path("b"), "2").expect("written");
        fs::rename(path("b"), path("a")).expect("renamed");
        watch.changed().await.expect("seen");
        symlink("a", path("l")).expect("linked");
        watch.changed().await.expect("seen");
        fs::remove_file(path("a")).expect("removed");
        watch.changed().await.expect("seen");
    }
}
