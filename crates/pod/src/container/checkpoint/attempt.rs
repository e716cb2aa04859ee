//! One attempt at a checkpoint. Its blocking work cannot be interrupted: on a file system that hangs it outlives the
//! request, and resumes while the next attempt is under way. So each attempt has files of its own, and writes nothing
//! once it is given up.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, error::failed, identifier};

/// Characters of an attempt's name.
const NAME: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Attempt {
    /// CRIU's files and what else is made for the archive.
    pub(super) directory: PathBuf,
    /// Where the archive will be.
    pub(super) location: PathBuf,
    /// The archive while it is written, next to `location`.
    pub(super) partial: PathBuf,
    given_up: AtomicBool,
}

impl Attempt {
    /// `attempts`: the directory of all attempts at a checkpoint of this container.
    pub(super) fn new(attempts: &Path, location: PathBuf) -> Result<Arc<Self>, Error> {
        let mut name = identifier::fresh()?;
        name.truncate(NAME);
        let partial = location.with_added_extension(format!("{name}.partial"));
        Ok(Arc::new(Self { directory: attempts.join(name), location, partial, given_up: AtomicBool::new(false) }))
    }

    /// Nobody waits for it any longer.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// # Errors
    /// It was given up.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.given_up.load(Ordering::Acquire) {
            true => Err(io::Error::other("the checkpoint was given up")),
            false => Ok(()),
        }
    }

    /// Removes the files of earlier attempts: of those that hung, and of a daemon that was killed. One attempt at a
    /// time that is not given up.
    pub(super) fn remove_others(&self) -> Result<(), Error> {
        self.check().map_err(failed("remove earlier attempts"))?;
        let entries = self.directory.parent().map(fs::read_dir);
        for entry in entries.and_then(Result::ok).into_iter().flatten().flatten() {
            let path = entry.path();
            if path == self.directory {
                continue;
            }
            let removed = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            if let Err(error) = removed {
                tracing::warn!("remove {} of an earlier checkpoint: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Puts the archive, once it is whole, where it is wanted.
    pub(super) fn publish(&self, written: Result<(), Error>) -> Result<(), Error> {
        let renamed = written.and_then(|()| {
            self.check()
                .and_then(|()| fs::rename(&self.partial, &self.location))
                .map_err(failed(format_args!("rename to {}", self.location.display())))
        });
        renamed.inspect_err(|_| {
            let _ = fs::remove_file(&self.partial);
        })
    }

    /// Removes what was made for the archive, and the directory of attempts with the last of them.
    pub(super) fn clean(&self) -> Result<(), Error> {
        if let Err(error) = fs::remove_dir_all(&self.directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(format_args!("remove {}", self.directory.display()))(error));
        }
        if let Some(attempts) = self.directory.parent() {
            let _ = fs::remove_dir(attempts);
        }
        Ok(())
    }
}

/// A writer that fails once its attempt is given up.
pub(super) struct Guarded<W> {
    pub(super) inner: W,
    pub(super) attempt: Arc<Attempt>,
}

impl<W: Write> Write for Guarded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt.check()?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(attempt: &Arc<Attempt>, text: &[u8]) -> Guarded<fs::File> {
        attempt.remove_others().expect("alone");
        fs::create_dir_all(&attempt.directory).expect("a directory");
        fs::write(attempt.directory.join("pages"), text).expect("pages");
        let mut file =
            Guarded { inner: fs::File::create_new(&attempt.partial).expect("new"), attempt: attempt.clone() };
        file.write_all(text).expect("written");
        file
    }

    #[test]
    fn an_attempt_that_was_given_up_harms_no_later_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let (attempts, location) = (dir.path().join("attempts"), dir.path().join("archive.tar"));
        let first = Attempt::new(&attempts, location.clone()).expect("an attempt");
        let mut late = begin(&first, b"first");
        first.give_up();
        let second = Attempt::new(&attempts, location.clone()).expect("an attempt");
        let file = begin(&second, b"second");
        assert!(!first.directory.exists(), "what hung is swept by the next");
        // The first comes back.
        assert!(late.write_all(b" more").is_err());
        assert!(first.remove_others().is_err());
        assert!(first.publish(Ok(())).is_err());
        first.clean().expect("clean");
        assert!(!location.exists() && !first.partial.exists());
        assert_eq!(fs::read(second.directory.join("pages")).expect("still there"), b"second");
        drop(file);
        second.publish(Ok(())).expect("the archive");
        second.clean().expect("clean");
        assert_eq!(fs::read(&location).expect("the archive"), b"second");
        let left: Vec<_> = fs::read_dir(dir.path()).expect("list").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["archive.tar"]);
    }

    #[test]
    fn what_an_earlier_daemon_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let attempts = dir.path().join("attempts");
        fs::create_dir_all(attempts.join("checkpoint")).expect("of a daemon before attempts had names");
        fs::write(attempts.join("dump.log"), "x").expect("written");
        let attempt = Attempt::new(&attempts, dir.path().join("archive.tar")).expect("an attempt");
        begin(&attempt, b"pages");
        let left: Vec<_> = fs::read_dir(&attempts).expect("list").flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, std::slice::from_ref(&attempt.directory));
    }
}
