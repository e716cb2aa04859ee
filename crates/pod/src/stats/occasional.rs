//! What takes opening files or looking at each process.

use std::os::unix::fs::MetadataExt;

use cgroup::Group;

/// Looked at every ten seconds at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occasional {
    /// When, nanoseconds since the epoch.
    pub at: u64,
    /// Processes.
    pub processes: u64,
    /// Their open files; `None` where the kernel does not count them (before 6.2).
    pub open_files: Option<u64>,
    /// How many files the first process may have open; `None`: no limit, or no process.
    pub open_files_limit: Option<u64>,
    /// Most memory that was in use at once, bytes.
    pub memory_max_usage: Option<u64>,
    /// How often memory hit its limit.
    pub memory_failures: u64,
    /// Memory of the kernel for it, bytes.
    pub memory_kernel: Option<u64>,
    /// Processes that the kernel ended because the container was out of memory.
    pub oom_kills: u64,
    /// Huge pages by size; only of a container that has limits of them.
    pub huge_pages: Vec<HugePages>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// As the kernel writes it: `2MB`.
    pub size: String,
    /// In use, bytes.
    pub usage: u64,
    /// Most that were in use, bytes.
    pub max_usage: u64,
}

/// Nobody needs the open files of more processes than these.
const PROCESSES: usize = 256;

/// Of a container whose first process is `pid`. What cannot be told is 0 or `None`.
pub(super) fn look(group: &Group, pid: Option<u32>, resources: &oci::Resources, at: u64) -> Occasional {
    let number = |controller: &str, file: &str| group.figures(controller, file)?.trim().parse::<u64>().ok();
    let v2 = group.has_v2_figures("memory");
    let pids = group.pids().unwrap_or_default();
    let pages = |size: &str| HugePages {
        size: size.to_owned(),
        usage: number("hugetlb", &format!("hugetlb.{size}.{}", if v2 { "current" } else { "usage_in_bytes" }))
            .unwrap_or(0),
        max_usage: number("hugetlb", &format!("hugetlb.{size}.max_usage_in_bytes")).unwrap_or(0),
    };
    Occasional {
        at,
        processes: pids.len() as u64,
        open_files: open_files(&pids),
        open_files_limit: pid.and_then(open_files_limit),
        memory_max_usage: number("memory", if v2 { "memory.peak" } else { "memory.max_usage_in_bytes" }),
        memory_failures: match v2 {
            true => event(group, "max"),
            false => number("memory", "memory.failcnt").unwrap_or(0),
        },
        memory_kernel: if v2 { None } else { number("memory", "memory.kmem.usage_in_bytes") },
        oom_kills: group.oom_kills(),
        huge_pages: resources.hugepage_limits.iter().map(|limit| pages(&limit.page_size)).collect(),
    }
}

fn event(group: &Group, name: &str) -> u64 {
    let events = group.figures("memory", "memory.events").unwrap_or_default();
    events.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// The size of `/proc/<pid>/fd` is the number of open files (kernel 6.2); before it was 0.
fn open_files(pids: &[i32]) -> Option<u64> {
    let of = |pid: &i32| std::fs::metadata(format!("/proc/{pid}/fd")).map(|folder| folder.size()).ok();
    let all: u64 = pids.iter().take(PROCESSES).filter_map(of).sum();
    (all > 0 || pids.is_empty()).then_some(all)
}

fn open_files_limit(pid: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

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
