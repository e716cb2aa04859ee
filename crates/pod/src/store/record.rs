//! Records: JSON files in one directory per object.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::identifier::{ContainerId, SandboxId};
use crate::{Error, error::failed, operation::retry};

/// Format of the records; other formats are not read.
///
/// Fields with a default may be added without changing the number (a daemon that does not know them ignores them). Any
/// other change requires a new number, and a daemon is not replaced by one with a different number.
pub(crate) const RECORD_VERSION: u64 = 1;
const METADATA: &str = "metadata.json";
const STATUS: &str = "status.json";

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u64,
    value: &'a T,
}

/// Kind of the object that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sandbox,
    Container,
}

impl Kind {
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Container => "container",
        }
    }
}

/// The id of an object that has a record.
pub(crate) trait RecordId: AsRef<str> + FromStr {
    /// Kind of the object.
    const KIND: Kind;
}

impl RecordId for SandboxId {
    const KIND: Kind = Kind::Sandbox;
}

impl RecordId for ContainerId {
    const KIND: Kind = Kind::Container;
}

/// A record that was read. The parts that cannot be read are returned as errors, and do not affect other records.
#[derive(Debug)]
pub(crate) struct LoadedRecord<I, M, S> {
    pub(crate) id: I,
    pub(crate) metadata: Result<M, Error>,
    /// `None` if the status was not written yet.
    pub(crate) status: Result<Option<S>, Error>,
}

/// The records in a state directory.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    root: PathBuf,
}

impl Records {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the directory of an object.
    pub(crate) fn directory<I: RecordId>(&self, id: &I) -> PathBuf {
        self.root.join(I::KIND.directory()).join(id.as_ref())
    }

    /// Creates the directory of an object and its metadata. From now on recovery knows the object after a crash.
    pub(crate) fn create(&self, id: &impl RecordId, metadata: &impl Serialize) -> Result<(), Error> {
        let directory = self.directory(id);
        offload::in_place(|| {
            let made = DirBuilder::new().mode(0o711).create(&directory);
            made.map_err(failed(format_args!("create {}", directory.display())))?;
            self.write(id, METADATA, metadata).inspect_err(|_| {
                // On a full tmpfs nothing must be left of an object that was not created. A directory that cannot be
                // removed has no metadata, and is removed at the next start.
                let _ = fs::remove_dir_all(&directory);
            })
        })
    }

    /// Replaces the status atomically.
    pub(crate) fn write_status(&self, id: &impl RecordId, status: &impl Serialize) -> Result<(), Error> {
        self.write(id, STATUS, status)
    }

    /// Writes another file of the record atomically.
    pub(crate) fn write(&self, id: &impl RecordId, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let path = self.directory(id).join(name);
        let replace = || -> io::Result<()> {
            let text = serde_json::to_vec(&Versioned { version: RECORD_VERSION, value })?;
            let temporary = path.with_extension("new");
            // Environments contain secrets, and the directory can be traversed by everyone.
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            let written = file.write_all(&text).and_then(|()| fs::rename(&temporary, &path));
            // On a full tmpfs the temporary file would use space that other records need.
            written.inspect_err(|_| drop(fs::remove_file(&temporary)))
        };
        offload::in_place(replace).map_err(failed(format_args!("write {}", path.display())))
    }

    /// Reads another file of the record.
    pub(crate) fn read<T: DeserializeOwned>(&self, id: &impl RecordId, name: &str) -> Result<T, Error> {
        offload::in_place(|| read(&self.directory(id).join(name)))
    }

    /// Reads another file of the record; `None` if it does not exist.
    pub(crate) fn read_if_present<T: DeserializeOwned>(
        &self,
        id: &impl RecordId,
        name: &str,
    ) -> Result<Option<T>, Error> {
        offload::in_place(|| find(&self.directory(id).join(name)))
    }

    /// Removes the directory of an object; succeeds if it does not exist.
    pub(crate) fn remove(&self, id: &impl RecordId) -> Result<(), Error> {
        let directory = self.directory(id);
        match offload::in_place(|| fs::remove_dir_all(&directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(format_args!("remove {}", directory.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Reads all records. Entries that are not records are moved aside with a warning.
    pub(crate) fn load<I: RecordId, M: DeserializeOwned, S: DeserializeOwned>(
        &self,
    ) -> Result<Vec<LoadedRecord<I, M, S>>, Error> {
        let directory = self.root.join(I::KIND.directory());
        let entries = fs::read_dir(&directory).map_err(failed(format_args!("read {}", directory.display())))?;
        let mut loaded = Vec::new();
        for entry in entries {
            // A record that is skipped here would never have an owner.
            let entry = entry.map_err(failed(format_args!("read {}", directory.display())))?;
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            let Some(id) = name.to_str().filter(|_| is_directory).and_then(|name| I::from_str(name).ok()) else {
                self.move_aside(I::KIND, &path);
                continue;
            };
            let (metadata, status) = (find(&path.join(METADATA)), find(&path.join(STATUS)));
            if matches!((&metadata, &status), (Ok(None), Ok(None))) {
                // The daemon died before it wrote the metadata, so nothing was created.
                let _ = fs::remove_dir_all(&path);
                continue;
            }
            let missing = || failed(format_args!("read {}", path.join(METADATA).display()))(io::ErrorKind::NotFound);
            let metadata = metadata.and_then(|metadata| metadata.ok_or_else(missing));
            loaded.push(LoadedRecord { id, metadata, status });
        }
        Ok(loaded)
    }

    fn move_aside(&self, kind: Kind, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let target = self.root.join("broken").join(format!("{}-{name}", kind.directory()));
        let _ = fs::remove_dir_all(&target);
        let moved = fs::rename(path, &target);
        tracing::warn!("{} is not a record: moving it to {}", path.display(), target.display());
        if let Err(error) = moved {
            tracing::warn!("move {} to {}: {error}", path.display(), target.display());
        }
    }
}

/// The version of a record of any format.
#[derive(Deserialize)]
struct VersionHeader {
    version: Option<u64>,
}

#[derive(Deserialize)]
struct Document<T> {
    version: u64,
    value: T,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    find(path)?.ok_or_else(|| failed(format_args!("read {}", path.display()))(io::ErrorKind::NotFound))
}

/// Reads a record file; `None` if it does not exist.
fn find<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let text = match retry(|| contents(path)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format_args!("read {}", path.display()))(error)),
    };
    let invalid = |why: String| Error::internal(format!("{}: {why}", path.display()));
    match serde_json::from_slice::<Document<T>>(&text) {
        Ok(Document { version: RECORD_VERSION, value }) => Ok(Some(value)),
        outcome => {
            let version = serde_json::from_slice::<VersionHeader>(&text).map_err(|e| invalid(e.to_string()))?.version;
            if version != Some(RECORD_VERSION) {
                return Err(invalid(format!("format {version:?}, this version reads {RECORD_VERSION}")));
            }
            Err(invalid(outcome.err().map_or_else(String::new, |error| error.to_string())))
        }
    }
}

/// Reads a file with three system calls, where [`fs::read`] uses five: on a tmpfs a short read means the end of the
/// file.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    const FIRST: usize = 16 << 10;
    let mut file = File::open(path)?;
    let (mut text, mut length) = (vec![0; FIRST], 0);
    loop {
        match file.read(&mut text[length..]) {
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if length < text.len() {
            text.truncate(length);
            return Ok(text);
        }
        text.resize(2 * length, 0);
    }
}

#[cfg(test)]
mod tests;
