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
    /// Of these, sockets; `None` where there are too many files to look at each.
    pub sockets: Option<u64>,
    /// How many files the first process may have open; `None`: no limit, or no process.
    pub open_files_limit: Option<u64>,
    /// Most memory that was in use at once, bytes.
    pub memory_max_usage: Option<u64>,
    /// How often memory hit its limit.
    pub memory_failures: u64,
    /// How often it was throttled because it was over `memory.high`; v2 only.
    pub memory_high: u64,
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
/// As many open files of a container are looked at, to count its sockets.
const FILES: usize = 2048;

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
    let events = group.figures("memory", "memory.events").unwrap_or_default();
    events.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// The size of `/proc/<pid>/fd` is the number of open files (kernel 6.2); before it was 0.
fn open_files(pids: &[i32]) -> Option<u64> {
    let of = |pid: &i32| std::fs::metadata(format!("/proc/{pid}/fd")).map(|directory| directory.size()).ok();
    let all: u64 = pids.iter().take(PROCESSES).filter_map(of).sum();
    (all > 0 || pids.is_empty()).then_some(all)
}

/// What `/proc/<pid>/fd` names `socket:[…]`. Processes and files come and go meanwhile.
fn sockets(pids: &[i32]) -> Option<u64> {
    let (mut files, mut found) = (0, 0);
    if pids.len() > PROCESSES {
        return None;
    }
    for pid in pids {
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for file in open.flatten() {
            files += 1;
            if files > FILES {
                return None;
            }
            let named = std::fs::read_link(file.path()).unwrap_or_default();
            found += u64::from(named.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        }
    }
    Some(found)
}

fn open_files_limit(pid: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_as_long_as_files_are_few() {
        let pid = std::process::id() as i32;
        let _pair = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(sockets(&[pid]).unwrap() >= 2);
        let many: Vec<_> = (0..=FILES).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
        assert!(many.len() <= FILES || sockets(&[pid]).is_none(), "a limit of open files may be lower");
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
