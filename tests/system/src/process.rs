use std::{
    fs,
    path::{Path, PathBuf},
};

/// A process of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Pid in the node's PID namespace.
    pub pid: i32,
    /// Name (`comm`).
    pub name: String,
    /// `Z` for a zombie, as in proc(5).
    pub state: char,
    /// Its parent's pid there; 0 for one from outside.
    pub parent: i32,
    /// Its directory in the node's procfs, as seen from the test.
    pub directory: PathBuf,
}

impl Process {
    /// Every process of a PID namespace, by a procfs of that namespace.
    pub(crate) fn all(procfs: &Path) -> Vec<Self> {
        let entries = fs::read_dir(procfs).expect("the node's procfs is readable").flatten();
        entries.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?, entry.path())).collect()
    }

    fn read(pid: i32, directory: PathBuf) -> Option<Self> {
        let status = fs::read_to_string(directory.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (name, state) = (field("Name:")?.to_owned(), field("State:")?.chars().next()?);
        Some(Self { pid, name, state, parent: field("PPid:")?.parse().ok()?, directory })
    }

    /// Whether it takes signals from a descriptor, as a monitor does, and not what it cloned that did not come to its
    /// program.
    pub fn takes_signals(&self) -> bool {
        let files = fs::read_dir(self.directory.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|to| to.as_os_str() == "anon_inode:[signalfd]")
    }

    /// Its command line, words separated by spaces.
    pub fn command_line(&self) -> String {
        let bytes = fs::read(self.directory.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ")
    }

    /// A path as this process sees it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.directory.join("root").join(inside.trim_start_matches('/'))
    }

    /// Proportional set size in KiB.
    pub fn pss_kib(&self) -> u64 {
        let rollup = fs::read_to_string(self.directory.join("smaps_rollup")).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}
