//! Checks of the data disk: it must accept writes.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};

use super::probe::Probe;
use crate::Condition;

/// Interval between two checks.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// A disk that takes longer for one byte is reported as not responding.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// How long [`DataDisk::check_now`] waits for a result.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Health of the data disk.
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

    /// Returns how long the disk has not responded; zero if it does.
    pub(super) fn silence(&self) -> Duration {
        self.probe.state().running.filter(|running| *running >= SILENT_MAX).unwrap_or_default()
    }

    /// Runs a new check and reports whether the disk accepts writes now.
    pub(super) async fn check_now(&self) -> Condition {
        if self.probe.check(CHECK_TIMEOUT).await.running.is_some() {
            let cause = format!("write to {}: no answer for more than {} s", self.path, CHECK_TIMEOUT.as_secs());
            return Condition::from_result(Err(cause), "DataDiskNotAnswering");
        }
        self.condition()
    }

    /// Begins a check unless one is running.
    pub(super) fn begin(&self) {
        self.probe.begin();
    }

    /// Reports the result of the last check.
    pub(super) fn condition(&self) -> Condition {
        if !self.silence().is_zero() {
            let cause = format!("write to {}: no answer for more than {} s", self.path, SILENT_MAX.as_secs());
            return Condition::from_result(Err(cause), "DataDiskNotAnswering");
        }
        let result = self.probe.state().latest.unwrap_or(Ok(()));
        Condition::from_result(result.map_err(|error| format!("write to {}: {error}", self.path)), "DataDiskFails")
    }
}

/// Writes one byte to an unnamed file in the directory and synchronizes it.
fn write_a_byte(directory: &Path) -> io::Result<()> {
    let mut options = File::options();
    let unnamed = options.write(true).mode(0o600).custom_flags(OFlags::TMPFILE.bits() as i32).open(directory);
    let mut file = match unnamed {
        Ok(file) => file,
        // A file system without unnamed files (NFS) must at least answer statfs(2).
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
    async fn check_now_does_not_return_the_result_of_an_earlier_check() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = DataDisk::new(directory.path());
        assert!(disk.check_now().await.ready);
        let path = directory.path().to_owned();
        drop(directory);
        assert!(disk.condition().ready, "the result of the last check");
        let now = disk.check_now().await;
        assert!(!now.ready && now.message.contains(&path.display().to_string()), "{}", now.message);
    }

    #[test]
    fn a_directory_is_written_to_and_left_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        write_a_byte(directory.path()).expect("write");
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
        write_a_byte(&directory.path().join("missing")).expect_err("no such directory");
    }
}
