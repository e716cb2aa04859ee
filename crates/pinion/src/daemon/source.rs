//! The sources of the configuration: files and the command line.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::config::{Config, ConfigError, DEFAULT_FILE, Layers, directory_of};

/// Maximum number of symbolic links in a path: as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// A configuration file with its drop-ins, and the command-line options that override them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// The configuration file; `None` for the default one, if it exists.
    pub(crate) file: Option<PathBuf>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) log_level: Option<String>,
}

/// The state of the files (device, inode, size and modification time) when they were checked last.
pub(crate) type Stamp = Vec<(PathBuf, Option<(u64, u64, u64, i64, i64)>)>;

impl Source {
    /// Reads the configuration. Returns the merged result and its layers.
    pub(crate) fn load(&self) -> Result<(Config, Layers), ConfigError> {
        let mut layers = Layers::load(self.file.as_deref())?;
        layers.add_command_line(self.command_line());
        Ok((Config::of(layers.clone())?, layers))
    }

    /// Returns the keys that are set on the command line.
    fn command_line(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let options = [
            ("socket", path(&self.socket)),
            ("state_dir", path(&self.state_dir)),
            ("data_dir", path(&self.data_dir)),
            ("log.level", self.log_level.clone()),
        ];
        options.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// Returns a stamp that changes when a file is modified or replaced.
    pub(crate) fn stamp(&self) -> Stamp {
        let stamp = |path: PathBuf| {
            let meta = fs::metadata(&path).ok();
            let state = meta.map(|m| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
            (path, state)
        };
        self.paths().into_iter().map(stamp).collect()
    }

    /// Returns the directories in which a change may change the configuration: those of its files, and those of every
    /// symbolic link in their paths.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let drop_ins = directory_of(self.file.as_deref());
        let mut directories = vec![existing(&drop_ins)];
        directories.extend(self.paths().iter().chain([&drop_ins]).flat_map(|path| link_directories(path)));
        directories.sort();
        directories.dedup();
        directories
    }

    fn paths(&self) -> Vec<PathBuf> {
        let main = self.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut paths = vec![main];
        let entries = fs::read_dir(directory_of(self.file.as_deref())).into_iter().flatten().flatten();
        let mut drop_ins: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        drop_ins.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        drop_ins.sort();
        paths.extend(drop_ins);
        paths
    }
}

/// Returns the directories of the symbolic links in a path, and the directory of the final target.
fn link_directories(path: &Path) -> Vec<PathBuf> {
    let (mut current, mut directories) = (PathBuf::new(), Vec::new());
    let mut parts: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            current.pop();
            continue;
        }
        let next = current.join(part);
        match fs::read_link(&next) {
            Ok(target) if directories.len() < LINKS_MAX => {
                directories.push(current.clone());
                target.components().rev().for_each(|part| parts.push_front(part.as_os_str().to_owned()));
            }
            _ => current = next,
        }
    }
    directories.extend(current.parent().map(existing));
    directories
}

/// Returns the directory, or its nearest ancestor that exists.
fn existing(directory: &Path) -> PathBuf {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_in_a_path_is_watched() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        let make = |name: &str| fs::create_dir_all(root.join(name)).expect("made");
        make("etc/c.toml.d");
        make("maps/..v1");
        make("maps/sub");
        fs::write(root.join("maps/..v1/k.toml"), "").expect("written");
        symlink("..v1", root.join("maps/..data")).expect("linked");
        symlink("../..data/k.toml", root.join("maps/sub/k.toml")).expect("linked");
        symlink(root.join("maps/sub/k.toml"), root.join("etc/c.toml.d/10.toml")).expect("linked");
        symlink("loop", root.join("etc/c.toml.d/loop")).expect("linked");
        let directories = link_directories(&root.join("etc/c.toml.d/10.toml"));
        let expected = ["etc/c.toml.d", "maps/sub", "maps", "maps/..v1"].map(|name| root.join(name));
        assert_eq!(directories, expected);
        assert!(link_directories(&root.join("etc/c.toml.d/loop")).len() <= LINKS_MAX + 1);
        assert_eq!(link_directories(&root.join("etc/not/there.toml")), [root.join("etc")]);
    }

    #[test]
    fn command_line_options_are_checked_like_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("c.toml");
        fs::write(&file, "data_dir = \"/d\"\n[log]\nlevel = \"warn\"\n").expect("written");
        let source = |level: &str, state: &str| Source {
            file: Some(file.clone()),
            state_dir: Some(state.into()),
            log_level: Some(level.to_owned()),
            ..Source::default()
        };
        let (config, layers) = source("debug", "/s").load().expect("valid");
        assert_eq!((config.log.level.as_str(), config.state_dir.as_path()), ("debug", Path::new("/s")));
        let toml = config.to_toml(Some(&layers)).expect("TOML");
        assert!(toml.lines().any(|line| line.starts_with("state_dir") && line.ends_with("# command line")), "{toml}");
        let error = source("loud", "/d/state").load().expect_err("refused").to_string();
        assert!(error.contains("command line: log.level: \"loud\" is not a level"), "{error}");
        assert!(error.contains("data_dir: /d and state_dir /d/state must not be nested"), "{error}");
    }
}
