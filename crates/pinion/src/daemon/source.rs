//! Where the configuration comes from: files, and what the command line says before them.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::config::{Config, ConfigError, DEFAULT_FILE, Layers, directory_of};

/// Most links on the way to a file: as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

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
        let mut layers = Layers::load(self.file.as_deref())?;
        layers.say(self.said());
        Ok((Config::of(layers.clone())?, layers))
    }

    /// Keys that the command line says.
    fn said(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let said = [
            ("socket", path(&self.socket)),
            ("state_dir", path(&self.state_dir)),
            ("data_dir", path(&self.data_dir)),
            ("log.level", self.log_level.clone()),
        ];
        said.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
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

    /// The directories in which a change may be one of the configuration: where its files are, and every link on the
    /// way there.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let drop_ins = directory_of(self.file.as_deref());
        let mut directories = vec![existing(&drop_ins)];
        directories.extend(self.paths().iter().chain([&drop_ins]).flat_map(|path| on_the_way(path)));
        directories.sort();
        directories.dedup();
        directories
    }

    fn paths(&self) -> Vec<PathBuf> {
        let main = self.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut paths = vec![main];
        let entries = fs::read_dir(directory_of(self.file.as_deref())).into_iter().flatten().flatten();
        let mut more: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        more.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        more.sort();
        paths.extend(more);
        paths
    }
}

/// Directories of the links that a path leads over, and the one in which it ends.
fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let (mut at, mut directories) = (PathBuf::new(), Vec::new());
    let mut parts: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        match fs::read_link(&next) {
            Ok(target) if directories.len() < LINKS_MAX => {
                directories.push(at.clone());
                target.components().rev().for_each(|part| parts.push_front(part.as_os_str().to_owned()));
            }
            _ => at = next,
        }
    }
    directories.extend(at.parent().map(existing));
    directories
}

/// The directory, or the nearest one above it that is there.
fn existing(directory: &Path) -> PathBuf {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_looked_at() {
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
        let found = on_the_way(&root.join("etc/c.toml.d/10.toml"));
        let expected = ["etc/c.toml.d", "maps/sub", "maps", "maps/..v1"].map(|name| root.join(name));
        assert_eq!(found, expected);
        assert!(on_the_way(&root.join("etc/c.toml.d/loop")).len() <= LINKS_MAX + 1);
        assert_eq!(on_the_way(&root.join("etc/not/there.toml")), [root.join("etc")]);
    }

    #[test]
    fn what_the_command_line_says_is_checked_like_a_file() {
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
        let shown = config.shown(Some(&layers)).expect("TOML");
        assert!(shown.lines().any(|line| line.starts_with("state_dir") && line.ends_with("# command line")), "{shown}");
        let error = source("loud", "/d/state").load().expect_err("refused").to_string();
        assert!(error.contains("command line: log.level: \"loud\" is not a level"), "{error}");
        assert!(error.contains("data_dir: /d and state_dir /d/state must not lie in one another"), "{error}");
    }
}
