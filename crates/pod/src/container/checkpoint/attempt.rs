//! One attempt at a checkpoint. Its blocking work cannot be interrupted: on a file system that hangs it outlives the
//! request, and resumes while the next attempt is in progress. So each attempt has its own files, and writes nothing
//! once it is abandoned.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, error::failed, store::identifier};

/// Length of an attempt's name, characters.
const NAME_LENGTH: usize = 16;

/// The files of one attempt, and whether it was abandoned.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Directory of CRIU's files and of the other files for the archive.
    pub(super) directory: PathBuf,
    /// Path of the finished archive.
    pub(super) location: PathBuf,
    /// Path of the archive while it is written, next to `location`.
    pub(super) partial: PathBuf,
    abandoned: AtomicBool,
}

impl Attempt {
    /// Creates an attempt. `attempts` is the directory of all attempts at a checkpoint of this container.
    pub(super) fn new(attempts: &Path, location: PathBuf) -> Result<Arc<Self>, Error> {
        let mut name = identifier::generate()?;
        name.truncate(NAME_LENGTH);
        let partial = location.with_added_extension(format!("{name}.partial"));
        Ok(Arc::new(Self { directory: attempts.join(name), location, partial, abandoned: AtomicBool::new(false) }))
    }

    /// Abandons the attempt: its work that is still in progress writes nothing any longer.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Checks that the attempt was not abandoned.
    ///
    /// # Errors
    /// It was abandoned.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.abandoned.load(Ordering::Acquire) {
            true => Err(io::Error::other("the checkpoint was abandoned")),
            false => Ok(()),
        }
    }

    /// Removes the files of earlier attempts: of those that hung, and of a daemon that was killed. Only one attempt at
    /// a time is not abandoned.
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
                tracing::warn!("remove {}, remaining over from an earlier checkpoint: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Renames the complete archive to its location, or removes it if writing it failed.
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

    /// Removes the files of this attempt, and the directory of all attempts if this was the last one.
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

/// A writer that fails once its attempt was abandoned.
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
        attempt.remove_others().expect("remove others");
        fs::create_dir_all(&attempt.directory).expect("a directory");
        fs::write(attempt.directory.join("pages"), text).expect("pages");
        let mut file =
            Guarded { inner: fs::File::create_new(&attempt.partial).expect("new"), attempt: attempt.clone() };
        file.write_all(text).expect("written");
        file
    }

    #[test]
    fn an_abandoned_attempt_does_not_harm_a_later_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let (attempts, location) = (dir.path().join("attempts"), dir.path().join("archive.tar"));
        let first = Attempt::new(&attempts, location.clone()).expect("an attempt");
        let mut hung_file = begin(&first, b"first");
        first.abandon();
        let second = Attempt::new(&attempts, location.clone()).expect("an attempt");
        let file = begin(&second, b"second");
        assert!(!first.directory.exists(), "the next attempt removes the files of one that hung");
        // The first attempt resumes.
        assert!(hung_file.write_all(b" more").is_err());
        assert!(first.remove_others().is_err());
        assert!(first.publish(Ok(())).is_err());
        first.clean().expect("clean");
        assert!(!location.exists() && !first.partial.exists());
        assert_eq!(fs::read(second.directory.join("pages")).expect("pages of the second attempt"), b"second");
        drop(file);
        second.publish(Ok(())).expect("the archive");
        second.clean().expect("clean");
        assert_eq!(fs::read(&location).expect("the archive"), b"second");
        let remaining: Vec<_> =
            fs::read_dir(dir.path()).expect("list").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(remaining, ["archive.tar"]);
    }

    #[test]
    fn files_left_over_from_an_earlier_daemon_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let attempts = dir.path().join("attempts");
        fs::create_dir_all(attempts.join("checkpoint")).expect("directory of a daemon before attempts had names");
        fs::write(attempts.join("dump.log"), "x").expect("written");
        let attempt = Attempt::new(&attempts, dir.path().join("archive.tar")).expect("an attempt");
        begin(&attempt, b"pages");
        let remaining: Vec<_> = fs::read_dir(&attempts).expect("list").flatten().map(|entry| entry.path()).collect();
        assert_eq!(remaining, std::slice::from_ref(&attempt.directory));
    }
}
