//! The record of an overlay, which the daemon writes for plugins: the subnets of this node and its peers. And the lock that
//! keeps processes apart that configure the kernel.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use syscall::file_lock::lock_briefly_held;

use crate::{Definition, Error, Peer};

/// Longest record that is read, in bytes: 5000 nodes need 1 MiB.
const RECORD_MAX: u64 = 4 << 20;
/// Longest time that another process is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A record: how this node takes part in an overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The overlay on this node.
    pub definition: Definition,
    /// Other nodes.
    pub peers: Vec<Peer>,
    /// Lease of the subnets in etcd.
    pub lease: i64,
    /// When the lease was renewed last, as [`boot_time`].
    pub renewed: u64,
}

/// Time for which a node that is gone keeps its subnets. Its daemon may be down for as long without any effect; after that
/// another node may get them, and no pod gets an address of them.
pub const LEASE_TTL: Duration = Duration::from_secs(24 * 3600);

/// Returns the seconds since the machine was started, with the time that it was suspended (`CLOCK_BOOTTIME`): a change of the
/// wall clock does not matter, and neither does a restart of the daemon.
#[must_use]
pub fn boot_time() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default()
}

fn path(directory: &Path, network: &str, extension: &str) -> PathBuf {
    directory.join(format!("{network}.{extension}"))
}

impl Record {
    /// Reads the record of a network; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Kernel`] if it cannot be read, [`Error::Config`] if it is damaged.
    pub fn read(directory: &Path, network: &str) -> Result<Option<Self>, Error> {
        let path = path(directory, network, "json");
        let object = path.display().to_string();
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(RECORD_MAX).read_to_end(&mut text));
        match read {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(Error::kernel("read", object, cause)),
            Ok(_) => {}
        }
        let parsed = serde_json::from_slice(&text);
        parsed
            .map(Some)
            .map_err(|error| Error::config(object, format!("{error}; restart the daemon to write it again")))
    }

    /// Reports whether there is a record of a network.
    #[must_use]
    pub fn exists(directory: &Path, network: &str) -> bool {
        path(directory, network, "json").exists()
    }

    /// Writes the record; readers see it as a whole or not at all.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn write(&self, directory: &Path, network: &str) -> Result<(), Error> {
        let (path, new) = (path(directory, network, "json"), path(directory, network, "new"));
        let write = || {
            let text = serde_json::to_vec(self)?;
            if u64::try_from(text.len()).unwrap_or(u64::MAX) > RECORD_MAX {
                return Err(io::Error::other("it would be longer than 4 MiB"));
            }
            create(directory)?;
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            fs::rename(&new, &path)
        };
        write().map_err(|cause: io::Error| Error::kernel("write", path.display().to_string(), cause))
    }

    /// Removes the record of a network, if there is one.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn remove(directory: &Path, network: &str) -> Result<(), Error> {
        let path = path(directory, network, "json");
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(Error::kernel("remove", path.display().to_string(), cause))
            }
            _ => Ok(()),
        }
    }
}

/// Creates the directory. Only root may enter it: every process that can open a lock can keep it.
fn create(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Locks an overlay of this node while its configuration is read and applied. The lock ends with the returned file.
///
/// # Errors
/// [`Error::Kernel`], also if another process has it for ten seconds.
pub fn lock(directory: &Path, network: &str) -> Result<File, Error> {
    let path = path(directory, network, "lock");
    let open = || {
        create(directory)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        lock_briefly_held(&file, LOCK_TIMEOUT)?;
        Ok(file)
    };
    open().map_err(|cause: io::Error| Error::kernel("lock", path.display().to_string(), cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::tests::definition;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("overlay");
        assert!(Record::read(&directory, "n").unwrap().is_none());
        let peer =
            Peer { node: "192.0.2.2".parse().unwrap(), subnets: vec!["10.244.2.0/24".parse().unwrap()], key: None };
        let record = Record { definition: definition(), peers: vec![peer], lease: 7, renewed: boot_time() };
        record.write(&directory, "n").unwrap();
        assert_eq!(Record::read(&directory, "n").unwrap(), Some(record));
        fs::write(directory.join("n.json"), "{\"definition\":").unwrap();
        assert!(Record::read(&directory, "n").unwrap_err().to_string().contains("restart the daemon"));
        Record::remove(&directory, "n").unwrap();
        Record::remove(&directory, "n").unwrap();
        assert!(Record::read(&directory, "n").unwrap().is_none());
    }
}
