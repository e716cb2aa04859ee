//! The directory of CNI configurations. The first file by name configures the network.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use super::Chain;
use crate::Error;

/// Longest configuration that is read, in bytes; usual ones have a few KiB.
const CONFIG_MAX: u64 = 1 << 20;
/// A file that was modified more recently than this may change again without a new time stamp: file systems' clocks
/// are coarse.
const TICK: Duration = Duration::from_millis(50);

/// The directory and its cached configuration. Two calls of stat detect a change.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    read: Mutex<Option<Read>>,
}

#[derive(Debug)]
struct Read {
    stamp: Stamp,
    trusted: bool,
    file: Option<PathBuf>,
    chain: Result<Option<Arc<Chain>>, (String, String)>,
}

/// Device, inode, size and modification time, of the directory and of the file.
type Stamp = [Option<(u64, u64, u64, SystemTime)>; 2];

fn stamp(path: &Path) -> Option<(u64, u64, u64, SystemTime)> {
    let data = fs::metadata(path).ok()?;
    Some((data.dev(), data.ino(), data.size(), data.modified().ok()?))
}

impl Directory {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: Mutex::new(None) }
    }

    /// Returns the network of the directory, or `None` if it has no configuration. Reads it again if it changed.
    pub(crate) fn chain(&self) -> Result<Option<Arc<Chain>>, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.as_ref().is_some_and(|read| read.trusted && read.stamp == self.stamp(read.file.as_deref())) {
            *read = Some(self.read());
        }
        let chain = read.as_ref().map_or(&Ok(None), |read| &read.chain);
        chain.clone().map_err(|(object, reason)| Error::Config { object, reason })
    }

    fn stamp(&self, file: Option<&Path>) -> Stamp {
        [stamp(&self.path), file.and_then(stamp)]
    }

    fn read(&self) -> Read {
        let now = SystemTime::now();
        let (file, chain) = match self.first() {
            Ok(None) => (None, Ok(None)),
            Ok(Some(file)) => {
                let chain = parse(&file).map(|chain| Some(Arc::new(chain)));
                (Some(file), chain)
            }
            Err(e) => (None, Err((format!("CNI directory {}", self.path.display()), e.to_string()))),
        };
        let stamp = self.stamp(file.as_deref());
        let settled = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age > TICK);
        let trusted = stamp.iter().flatten().all(|s| settled(s.3));
        Read { stamp, trusted, file, chain }
    }

    fn first(&self) -> io::Result<Option<PathBuf>> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let kind = path.extension().and_then(|e| e.to_str());
            if matches!(kind, Some("conf" | "conflist" | "json")) && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files.into_iter().next())
    }
}

fn parse(file: &Path) -> Result<Chain, (String, String)> {
    let object = format!("cni config {}", file.display());
    let read = fs::metadata(file).and_then(|data| match data.len() {
        0..=CONFIG_MAX => fs::read(file),
        _ => Err(io::Error::other("longer than 1 MiB")),
    });
    let text = read.map_err(|e| (object.clone(), e.to_string()))?;
    let value = serde_json::from_slice(&text).map_err(|e| (object.clone(), format!("not JSON: {e}")))?;
    Chain::parse(value).map(|chain| chain.of_file(file)).map_err(|e| (object, e))
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
