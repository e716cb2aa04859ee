//! Statistics that require opening files or inspecting each process.

use std::os::unix::fs::MetadataExt;

use cgroup::Group;

/// Statistics that are read at most every ten seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpensiveStats {
    /// When they were read, in nanoseconds since the epoch.
    pub at: u64,
    /// Number of processes.
    pub processes: u64,
    /// Number of their open files; `None` if the kernel does not count them (before 6.2).
    pub open_files: Option<u64>,
    /// Number of sockets among the open files; `None` if there are too many files to inspect.
    pub sockets: Option<u64>,
    /// Limit of open files of the first process; `None` without a limit or without a process.
    pub open_files_limit: Option<u64>,
    /// Maximum memory usage so far, in bytes.
    pub memory_max_usage: Option<u64>,
    /// Number of times that memory usage reached its limit.
    pub memory_failures: u64,
    /// Number of times that it was throttled for exceeding `memory.high`; v2 only.
    pub memory_high: u64,
    /// Kernel memory, in bytes.
    pub memory_kernel: Option<u64>,
    /// Number of processes killed by the OOM killer.
    pub oom_kills: u64,
    /// Usage of huge pages by size; only for a container with limits on them.
    pub huge_pages: Vec<HugePages>,
}

/// Usage of huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Page size as written by the kernel, such as `2MB`.
    pub size: String,
    /// Usage in bytes.
    pub usage: u64,
    /// Maximum usage so far, in bytes.
    pub max_usage: u64,
}

/// Number of processes whose open files are counted.
const PROCESSES_MAX: usize = 256;
/// Number of open files of a container that are inspected to count its sockets.
const FILES_MAX: usize = 2048;

/// Reads the statistics of a container whose first process is `pid`. Values that cannot be read are 0 or `None`.
pub(super) fn read(group: &Group, pid: Option<u32>, resources: &oci::Resources, at: u64) -> ExpensiveStats {
    let number = |controller: &str, file: &str| group.read(controller, file)?.trim().parse::<u64>().ok();
    let v2 = group.is_v2("memory");
    let pids: Vec<i32> = group.pids().unwrap_or_default().into_iter().map(rustix::process::Pid::as_raw_pid).collect();
    let pages = |size: &str| HugePages {
        size: size.to_owned(),
        usage: number("hugetlb", &format!("hugetlb.{size}.{}", if v2 { "current" } else { "usage_in_bytes" }))
            .unwrap_or(0),
        max_usage: number("hugetlb", &format!("hugetlb.{size}.max_usage_in_bytes")).unwrap_or(0),
    };
    ExpensiveStats {
        at,
        processes: pids.len() as u64,
        open_files: open_files(&pids),
        sockets: sockets(&pids),
        open_files_limit: pid.and_then(open_files_limit),
        memory_max_usage: number("memory", if v2 { "memory.peak" } else { "memory.max_usage_in_bytes" }),
        memory_failures: match v2 {
            true => event(group, "max"),
            false => number("memory", "memory.failcnt").unwrap_or(0),
        },
        memory_high: if v2 { event(group, "high") } else { 0 },
        memory_kernel: if v2 { None } else { number("memory", "memory.kmem.usage_in_bytes") },
        oom_kills: group.oom_kills(),
        huge_pages: resources.hugepage_limits.iter().map(|limit| pages(&limit.page_size)).collect(),
    }
}

fn event(group: &Group, name: &str) -> u64 {
    let events = group.read("memory", "memory.events").unwrap_or_default();
    events.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Counts open files by the size of `/proc/<pid>/fd` (Linux 6.2); the size was 0 before.
fn open_files(pids: &[i32]) -> Option<u64> {
    let count = |pid: &i32| std::fs::metadata(format!("/proc/{pid}/fd")).map(|directory| directory.size()).ok();
    let all: u64 = pids.iter().take(PROCESSES_MAX).filter_map(count).sum();
    (all > 0 || pids.is_empty()).then_some(all)
}

/// Counts the links in `/proc/<pid>/fd` to `socket:[…]`. Processes and files may come and go in the meantime.
fn sockets(pids: &[i32]) -> Option<u64> {
    let (mut files, mut sockets) = (0, 0);
    if pids.len() > PROCESSES_MAX {
        return None;
    }
    for pid in pids {
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for file in open.flatten() {
            files += 1;
            if files > FILES_MAX {
                return None;
            }
            let link = std::fs::read_link(file.path()).unwrap_or_default();
            sockets += u64::from(link.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        }
    }
    Some(sockets)
}

fn open_files_limit(pid: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_while_there_are_few_files() {
        let pid = std::process::id() as i32;
        let _pair = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(sockets(&[pid]).unwrap() >= 2);
        let many: Vec<_> = (0..=FILES_MAX).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
        assert!(many.len() <= FILES_MAX || sockets(&[pid]).is_none(), "a limit of open files may be lower");
        assert_eq!(sockets(&[]), Some(0));
    }

    #[test]
    fn this_process_has_open_files_and_a_limit() {
        let pid = std::process::id();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        if let Some(open) = open_files(&[pid as i32]) {
            assert!(open >= 1);
        }
        drop(file);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        assert_eq!(open_files_limit(pid), limit);
        assert_eq!(open_files(&[]), Some(0));
    }
}
