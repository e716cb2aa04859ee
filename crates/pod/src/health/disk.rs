//! Whether the data disk takes what is written.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};

use super::{Engine, probe::Probe};
use crate::{Condition, engine::Inner};

/// Between two checks.
const EVERY: Duration = Duration::from_secs(10);
/// A disk that takes longer for one byte is reported.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// How long a caller waits who must know.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct DataDisk {
    probe: Arc<Probe<Result<(), String>>>,
    path: String,
}

impl DataDisk {
    pub(super) fn new(directory: &Path) -> Self {
        let path = directory.display().to_string();
        let directory = directory.to_owned();
        let check = move || write_a_byte(&directory).map_err(|error| error.to_string());
        Self { probe: Probe::new("pinion-disk", check), path }
    }

    /// How long it has not answered; zero while it does.
    pub(super) fn silence(&self) -> Duration {
        self.probe.seen().running.filter(|running| *running >= SILENT_MAX).unwrap_or_default()
    }

    /// Whether it takes what is written now: the answer of a check that begins now, not of the last one.
    pub(super) async fn check_now(&self) -> Condition {
        if self.probe.look(PATIENCE).await.running.is_some() {
            let why = format!("write to {}: no answer for more than {} s", self.path, PATIENCE.as_secs());
            return Condition::of(Err(why), "DataDiskNotAnswering");
        }
        self.condition()
    }

    /// Whether it takes what is written.
    pub(super) fn condition(&self) -> Condition {
        if !self.silence().is_zero() {
            let why = format!("write to {}: no answer for more than {} s", self.path, SILENT_MAX.as_secs());
            return Condition::of(Err(why), "DataDiskNotAnswering");
        }
        let answer = self.probe.seen().latest.unwrap_or(Ok(()));
        Condition::of(answer.map_err(|error| format!("write to {}: {error}", self.path)), "DataDiskFails")
    }
}

/// Checks again and again, for as long as the engine lives, and logs what changes.
pub(super) async fn check(engine: Engine, disk: impl Fn(&Inner) -> &DataDisk) {
    let mut known = String::new();
    loop {
        // First of all the start's own work.
        tokio::time::sleep(EVERY).await;
        let Some(engine) = engine.upgrade() else { return };
        let now = disk(&engine).condition();
        disk(&engine).probe.begin();
        drop(engine);
        if now.reason != known {
            match now.ready {
                true => tracing::info!("the data disk answers again"),
                false => tracing::error!(reason = now.reason, "{}", now.message),
            }
            known = now.reason;
        }
    }
}

/// Writes one byte to a file that has no name and synchronises it.
fn write_a_byte(directory: &Path) -> io::Result<()> {
    let mut options = File::options();
    let unnamed = options.write(true).mode(0o600).custom_flags(OFlags::TMPFILE.bits() as i32).open(directory);
    let mut file = match unnamed {
        Ok(file) => file,
        // A file system that has no files without a name (NFS) answers at least.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
            return rustix::fs::statfs(directory).map(drop).map_err(io::Error::from);
        }
        Err(error) => return Err(error),
    };
    file.write_all(b"1")?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_check_that_is_wanted_now_is_no_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = DataDisk::new(directory.path());
        assert!(disk.check_now().await.ready);
        let gone = directory.path().to_owned();
        drop(directory);
        assert!(disk.condition().ready, "of the last check");
        let now = disk.check_now().await;
        assert!(!now.ready && now.message.contains(&gone.display().to_string()), "{}", now.message);
    }

    #[test]
    fn a_directory_is_written_to_and_left_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        write_a_byte(directory.path()).expect("written");
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
        write_a_byte(&directory.path().join("missing")).expect_err("there is none");
    }
}
