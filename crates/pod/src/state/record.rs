//! Records as JSON files: one directory per object.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, attempts, error::failed, events::Events};

/// Format of the records; another one is not read.
///
/// Fields may be added to it that have a default (a daemon that does not know them ignores them); anything else raises
/// it, and a daemon then gives way to none of another version.
pub(crate) const RECORD_VERSION: u64 = 1;
const METADATA: &str = "metadata.json";
const STATUS: &str = "status.json";

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u64,
    value: &'a T,
}

/// What a record is about.
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

/// A record that was found. What of it cannot be read is told, and disturbs nobody.
#[derive(Debug)]
pub(crate) struct Loaded<M, S> {
    pub(crate) id: String,
    pub(crate) metadata: Result<M, Error>,
    /// None: it was only just begun.
    pub(crate) status: Result<Option<S>, Error>,
}

/// The directories of one state directory.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    root: PathBuf,
    events: Arc<Events>,
}

impl Records {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), events: Arc::default() }
    }

    /// Where changes of records are told.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The directory of an object.
    pub(crate) fn directory(&self, kind: Kind, id: &str) -> PathBuf {
        self.root.join(kind.directory()).join(id)
    }

    /// Makes the directory and its metadata: from now on the object is known to whoever comes after a crash.
    pub(crate) fn create(&self, kind: Kind, id: &str, metadata: &impl Serialize) -> Result<(), Error> {
        let directory = self.directory(kind, id);
        offload::here(|| {
            let made = DirBuilder::new().mode(0o711).create(&directory);
            made.map_err(failed(format_args!("create {}", directory.display())))?;
            self.write(kind, id, METADATA, metadata).inspect_err(|_| {
                // On a full tmpfs: what was not begun leaves nothing. What cannot be removed is no record, and goes at
                // the next start.
                let _ = fs::remove_dir_all(&directory);
            })
        })
    }

    /// Replaces the status in one step.
    pub(crate) fn write_status(&self, kind: Kind, id: &str, status: &impl Serialize) -> Result<(), Error> {
        self.write(kind, id, STATUS, status)
    }

    /// Writes another file of the record in one step.
    pub(crate) fn write(&self, kind: Kind, id: &str, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let path = self.directory(kind, id).join(name);
        let wrap = || -> io::Result<()> {
            let text = serde_json::to_vec(&Versioned { version: RECORD_VERSION, value })?;
            let beside = path.with_extension("new");
            // Environments hold secrets, and the directory may be passed through by everyone.
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            let written = file.write_all(&text).and_then(|()| fs::rename(&beside, &path));
            // On a full tmpfs it would hold what others need.
            written.inspect_err(|_| drop(fs::remove_file(&beside)))
        };
        offload::here(wrap).map_err(failed(format_args!("write {}", path.display())))
    }

    /// Reads another file of the record.
    pub(crate) fn read<T: DeserializeOwned>(&self, kind: Kind, id: &str, name: &str) -> Result<T, Error> {
        offload::here(|| read(&self.directory(kind, id).join(name)))
    }

    /// Removes the directory; one that is not there is fine.
    pub(crate) fn remove(&self, kind: Kind, id: &str) -> Result<(), Error> {
        let directory = self.directory(kind, id);
        match offload::here(|| fs::remove_dir_all(&directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(format_args!("remove {}", directory.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// All there are. What is no record at all is put aside with a warning.
    pub(crate) fn load<M: DeserializeOwned, S: DeserializeOwned>(
        &self,
        kind: Kind,
    ) -> Result<Vec<Loaded<M, S>>, Error> {
        let directory = self.root.join(kind.directory());
        let entries = fs::read_dir(&directory).map_err(failed(format_args!("read {}", directory.display())))?;
        let mut loaded = Vec::new();
        for entry in entries {
            // A record that is not seen here would be nobody's from now on.
            let entry = entry.map_err(failed(format_args!("read {}", directory.display())))?;
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Some(id) = entry.file_name().to_str().filter(|name| is_id(name) && is_directory).map(str::to_owned)
            else {
                self.put_aside(kind, &path);
                continue;
            };
            let (metadata, status) = (find(&path.join(METADATA)), find(&path.join(STATUS)));
            if matches!((&metadata, &status), (Ok(None), Ok(None))) {
                // It died before its metadata was there, hence before anything was made.
                let _ = fs::remove_dir_all(&path);
                continue;
            }
            let missing = || failed(format_args!("read {}", path.join(METADATA).display()))(io::ErrorKind::NotFound);
            let metadata = metadata.and_then(|metadata| metadata.ok_or_else(missing));
            loaded.push(Loaded { id, metadata, status });
        }
        Ok(loaded)
    }

    fn put_aside(&self, kind: Kind, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.root.join("broken").join(format!("{}-{name}", kind.directory()));
        let _ = fs::remove_dir_all(&aside);
        let moved = fs::rename(path, &aside);
        tracing::warn!("{} is no record: it is now in {}", path.display(), aside.display());
        if let Err(error) = moved {
            tracing::warn!("move {} to {}: {error}", path.display(), aside.display());
        }
    }
}

/// As [`crate::identifier::fresh`] makes them.
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A record of any version.
#[derive(Deserialize)]
struct Head {
    version: Option<u64>,
}

#[derive(Deserialize)]
struct Whole<T> {
    version: u64,
    value: T,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    find(path)?.ok_or_else(|| failed(format_args!("read {}", path.display()))(io::ErrorKind::NotFound))
}

/// `None`: there is no such file.
fn find<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let text = match attempts::repeat(|| contents(path)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format_args!("read {}", path.display()))(error)),
    };
    let wrong = |why: String| Error::internal(format!("{}: {why}", path.display()));
    match serde_json::from_slice::<Whole<T>>(&text) {
        Ok(Whole { version: RECORD_VERSION, value }) => Ok(Some(value)),
        outcome => {
            let version = serde_json::from_slice::<Head>(&text).map_err(|e| wrong(e.to_string()))?.version;
            if version != Some(RECORD_VERSION) {
                return Err(wrong(format!("format {version:?}, this version reads {RECORD_VERSION}")));
            }
            Err(wrong(outcome.err().map_or_else(String::new, |error| error.to_string())))
        }
    }
}

/// In three system calls where [`fs::read`] takes five: of a file on a tmpfs, less than was asked for is the rest.
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
