//! The directory of CNI configurations. The first file by name configures the network.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use super::{
    Chain,
    load::{Failure, files, load},
};
use crate::Error;

/// A file that was modified more recently than this may change again without a new time stamp: file systems' clocks
/// are coarse.
const TICK: Duration = Duration::from_millis(50);

/// The directory and its cached configuration. A few calls of stat detect a change.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    read: Mutex<Option<Read>>,
    all: Mutex<Option<All>>,
}

/// All networks of the directory, which are compared periodically with what runs.
#[derive(Debug)]
struct All {
    stamp: Stamp,
    trusted: bool,
    paths: Vec<PathBuf>,
    chains: Vec<Arc<Chain>>,
    is_complete: bool,
}

#[derive(Debug)]
struct Read {
    stamp: Stamp,
    trusted: bool,
    /// The directory, the file, and what belongs to it.
    paths: Vec<PathBuf>,
    chain: Result<Option<Arc<Chain>>, Failure>,
}

/// Device, inode, size and modification time, of each path.
type Stamp = Vec<Option<(u64, u64, u64, SystemTime)>>;

/// Extensions of configurations.
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

fn stamp(path: &Path) -> Option<(u64, u64, u64, SystemTime)> {
    let data = fs::metadata(path).ok()?;
    Some((data.dev(), data.ino(), data.size(), data.modified().ok()?))
}

impl Directory {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: Mutex::new(None), all: Mutex::new(None) }
    }

    /// Returns the network of the directory, or `None` if it has no configuration. Reads it again if it changed.
    pub(crate) fn chain(&self) -> Result<Option<Arc<Chain>>, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.as_ref().is_some_and(|read| read.trusted && read.stamp == stamps(&read.paths)) {
            *read = Some(self.read());
        }
        let chain = read.as_ref().map_or(&Ok(None), |read| &read.chain);
        chain.clone().map_err(|(object, reason)| Error::Config { object, reason })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the network of a name; `None` if it does not exist. Files that are not valid are skipped with a
    /// warning, unless a valid one of that name is missing.
    pub(crate) fn named(&self, name: &str) -> Result<Option<Arc<Chain>>, Error> {
        let files = files(&self.path, &EXTENSIONS).map_err(|e| Error::path("read", &self.path, e))?;
        let mut invalid = None;
        for file in files {
            match load(&file).chain {
                Ok(chain) if chain.name == name => return Ok(Some(Arc::new(chain))),
                Ok(_) => {}
                Err((object, reason)) => {
                    tracing::warn!(object, reason, "skipping a CNI configuration that is not valid");
                    invalid.get_or_insert((object, reason));
                }
            }
        }
        match invalid {
            None => Ok(None),
            Some((object, reason)) => {
                let reason = format!("{object}: {reason}; no other file configures a network of this name");
                Err(Error::config(format!("network {name}"), reason))
            }
        }
    }

    /// Returns the valid networks of the directory, and whether there are no others: all files could be read. Reads files
    /// only if one of them has changed. Files that are not valid are reported where they are used.
    pub(crate) fn all(&self) -> (Vec<Arc<Chain>>, bool) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = all.as_ref().filter(|all| all.trusted && all.stamp == stamps(&all.paths)) {
            return (all.chains.clone(), all.is_complete);
        }
        let now = SystemTime::now();
        let (mut paths, mut chains) = (vec![self.path.clone()], Vec::new());
        let Ok(files) = files(&self.path, &EXTENSIONS) else { return (chains, false) };
        let mut is_complete = true;
        for file in files {
            let loaded = load(&file);
            paths.push(file);
            paths.extend(loaded.parts);
            is_complete &= loaded.chain.is_ok();
            chains.extend(loaded.chain.ok().map(Arc::new));
        }
        let stamp = stamps(&paths);
        let trusted = is_complete && is_settled(&stamp, now);
        *all = Some(All { trusted, stamp, paths, chains: chains.clone(), is_complete });
        (chains, is_complete)
    }

    fn read(&self) -> Read {
        let now = SystemTime::now();
        let mut paths = vec![self.path.clone()];
        let chain = match files(&self.path, &EXTENSIONS).map(|files| files.into_iter().next()) {
            Ok(None) => Ok(None),
            Ok(Some(file)) => {
                let loaded = load(&file);
                paths.push(file);
                paths.extend(loaded.parts);
                loaded.chain.map(|chain| Some(Arc::new(chain)))
            }
            Err(e) => Err((format!("CNI directory {}", self.path.display()), e.to_string())),
        };
        let stamp = stamps(&paths);
        Read { trusted: is_settled(&stamp, now), stamp, paths, chain }
    }
}

/// Reports whether no file was modified so recently that it may change again without a new time stamp.
fn is_settled(stamp: &Stamp, now: SystemTime) -> bool {
    let settled = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age > TICK);
    stamp.iter().flatten().all(|s| settled(s.3))
}

fn stamps(paths: &[PathBuf]) -> Stamp {
    paths.iter().map(|path| stamp(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"cniVersion": "1.0.0", "name": "NAME", "plugins": [{"type": "x"}]}"#;

    fn name(directory: &Directory) -> String {
        directory.chain().unwrap().map(|chain| chain.name.clone()).unwrap_or_default()
    }

    #[test]
    fn the_first_file_by_name_is_used_and_changes_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(&dir.path().join("net.d"));
        assert_eq!(name(&directory), "");
        fs::create_dir(dir.path().join("net.d")).unwrap();
        let write = |file: &str, text: &str| fs::write(dir.path().join("net.d").join(file), text).unwrap();
        write("README.md", "no configuration");
        assert_eq!(name(&directory), "");
        write("20.conflist", &GOOD.replace("NAME", "second"));
        assert_eq!(name(&directory), "second");
        write("10.conflist", &GOOD.replace("NAME", "first"));
        assert_eq!(name(&directory), "first");
        write("10.conflist", &GOOD.replace("NAME", "other"));
        assert_eq!(name(&directory), "other");
        fs::remove_file(dir.path().join("net.d/10.conflist")).unwrap();
        assert_eq!(name(&directory), "second");
    }

    #[test]
    fn invalid_json_is_reported_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("10-x.conflist"), "{\n \"name\": \"n\",\n oops\n}").unwrap();
        let error = Directory::new(dir.path()).chain().unwrap_err().to_string();
        assert!(error.contains("10-x.conflist: not JSON:") && error.contains("line 3"), "{error}");
    }
}
