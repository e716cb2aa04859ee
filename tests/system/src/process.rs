use std::{
    fs,
    path::{Path, PathBuf},
};

use testbed::Memory;

/// A process of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The pid in the PID namespace of the node.
    pub pid: i32,
    /// The name (`comm`).
    pub name: String,
    /// The state as in proc_pid_stat(5), for example `Z` for a zombie.
    pub state: char,
    /// The pid of the parent in that namespace; 0 if the parent is outside of it.
    pub parent: i32,
    /// The directory in the procfs of the node, as seen from the test.
    pub directory: PathBuf,
}

impl Process {
    /// Returns all processes of a PID namespace, given a procfs of that namespace.
    pub(crate) fn all(procfs: &Path) -> Vec<Self> {
        let entries = fs::read_dir(procfs).expect("read the procfs of the node").flatten();
        entries.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?, entry.path())).collect()
    }

    fn read(pid: i32, directory: PathBuf) -> Option<Self> {
        let status = fs::read_to_string(directory.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (name, state) = (field("Name:")?.to_owned(), field("State:")?.chars().next()?);
        Some(Self { pid, name, state, parent: field("PPid:")?.parse().ok()?, directory })
    }

    /// Whether the process has a signalfd, as a monitor does. A child that the monitor cloned has no signalfd until it
    /// executes its program.
    pub fn has_signalfd(&self) -> bool {
        let files = fs::read_dir(self.directory.join("fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.as_os_str() == "anon_inode:[signalfd]")
    }

    /// Returns the command line, separated by spaces.
    pub fn command_line(&self) -> String {
        let bytes = fs::read(self.directory.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ")
    }

    /// Returns the path of a file that has the path `inside` in the mount namespace of the process.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.directory.join("root").join(inside.trim_start_matches('/'))
    }

    /// Returns the memory of the process, or `None` if it exited.
    pub fn memory(&self) -> Option<Memory> {
        testbed::memory(&self.directory)
    }
}
