//! Where the configuration comes from: files, and what the command line says before them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::config::{Config, ConfigError, DEFAULT_FILE, Layers, folder_of};

/// A file and its drop-ins, and what goes before them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// `None`: the default one, where it is there.
    pub(crate) file: Option<PathBuf>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) log_level: Option<String>,
}

/// What the files were when they were looked at.
pub(crate) type Stamp = Vec<(PathBuf, Option<(u64, u64, u64, i64, i64)>)>;

impl Source {
    /// What holds, and the files that say it.
    pub(crate) fn load(&self) -> Result<(Config, Layers), ConfigError> {
        let layers = Layers::load(self.file.as_deref())?;
        let mut config = Config::of(layers.clone())?;
        let Self { socket, state_dir, data_dir, log_level, .. } = self.clone();
        config.socket = socket.unwrap_or(config.socket);
        config.state_dir = state_dir.unwrap_or(config.state_dir);
        config.data_dir = data_dir.unwrap_or(config.data_dir);
        config.log.level = log_level.unwrap_or(config.log.level);
        Ok((config, layers))
    }

    /// Keys that the command line says.
    pub(crate) fn said(&self) -> Vec<&'static str> {
        let said = [
            ("socket", self.socket.is_some()),
            ("state_dir", self.state_dir.is_some()),
            ("data_dir", self.data_dir.is_some()),
            ("log.level", self.log_level.is_some()),
        ];
        said.into_iter().filter(|(_, said)| *said).map(|(key, _)| key).collect()
    }

    /// Changes when a file does: another one in its place, too.
    pub(crate) fn stamp(&self) -> Stamp {
        let look = |path: PathBuf| {
            let meta = fs::metadata(&path).ok();
            let mark = meta.map(|m| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
            (path, mark)
        };
        self.paths().into_iter().map(look).collect()
    }

    /// The folders in which a change may be one of the configuration: where its files are, and where they are links to.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![existing(&folder_of(self.file.as_deref()))];
        for path in self.paths() {
            let real = path.canonicalize().ok();
            folders.extend([Some(path), real].into_iter().flatten().filter_map(|p| p.parent().map(existing)));
        }
        folders.sort();
        folders.dedup();
        folders
    }

    fn paths(&self) -> Vec<PathBuf> {
        let main = self.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut paths = vec![main];
        let entries = fs::read_dir(folder_of(self.file.as_deref())).into_iter().flatten().flatten();
        let mut more: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        more.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        more.sort();
        paths.extend(more);
        paths
    }
}

/// The folder, or the nearest one above it that is there.
fn existing(folder: &Path) -> PathBuf {
    folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}
