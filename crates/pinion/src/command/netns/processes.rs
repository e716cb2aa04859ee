use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use netns::Namespace;

use crate::Failure;

/// The processes of this machine, by the inode of their network namespace.
pub(super) struct Processes(HashMap<u64, Vec<u32>>);

impl Processes {
    pub(super) fn now() -> Result<Self, Failure> {
        let mut all: HashMap<u64, Vec<u32>> = HashMap::new();
        let entries = fs::read_dir("/proc").map_err(|e| Failure::new(format!("read /proc: {e}")))?;
        for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            // It fails for a process that has exited.
            if let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/net")) {
                all.entry(namespace.ino()).or_default().push(pid);
            }
        }
        Ok(Self(all))
    }

    /// Returns the pids of the processes in a namespace, which is open and so keeps its inode.
    pub(super) fn of(&self, namespace: &Namespace) -> Result<Vec<u32>, Failure> {
        let stat =
            rustix::fs::fstat(namespace).map_err(|e| Failure::new(format!("inspect a network namespace: {e}")))?;
        let mut pids = self.0.get(&stat.st_ino).cloned().unwrap_or_default();
        pids.sort_unstable();
        Ok(pids)
    }
}
