use std::{fs, path::Path};

/// Counts the open descriptors of a process, given its directory in a procfs.
#[track_caller]
pub fn descriptors(process: impl AsRef<Path>) -> usize {
    entries(&process.as_ref().join("fd"))
}

/// Counts the threads of a process, given its directory in a procfs.
#[track_caller]
pub fn threads(process: impl AsRef<Path>) -> usize {
    entries(&process.as_ref().join("task"))
}

#[track_caller]
fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap_or_else(|cause| panic!("{}: {cause}", directory.display())).count()
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident set size.
    pub resident: u64,
    /// Proportional set size: pages that several processes map count in parts.
    pub proportional: u64,
    /// Pages that no file backs: heap and stacks. It depends neither on the size of the program nor on the page cache.
    pub anonymous: u64,
    /// Pages of files that are resident, those of the program above all: which of them were read depends on what it did.
    pub file: u64,
}

/// Reads the memory of a process from `smaps_rollup` and `status` of its directory in a procfs (proc_pid_smaps(5),
/// proc_pid_status(5)). Returns `None` if the process exited.
pub fn memory(directory: &Path) -> Option<Memory> {
    let text = fs::read_to_string(directory.join("smaps_rollup")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let file = status.lines().find_map(|line| line.strip_prefix("RssFile:"))?;
    Some(Memory {
        resident: field("Rss")?,
        proportional: field("Pss")?,
        anonymous: field("Anonymous")?,
        file: file.split_whitespace().next()?.parse().ok()?,
    })
}
