//! The privileges of this process.

use std::sync::atomic::{AtomicI32, Ordering};

/// Reports whether this process is root on the host: uid 0 in the initial user namespace (or in one that maps all ids).
/// Any other user can use only cgroups that are delegated to them.
pub(crate) fn is_host_root() -> bool {
    rustix::process::geteuid().is_root() && maps_all_ids()
}

/// Reads the map once per process: a forked process may have entered another user namespace.
fn maps_all_ids() -> bool {
    /// The pid of the process whose map has all ids; 0 if that is not known.
    static KNOWN: AtomicI32 = AtomicI32::new(0);
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    if KNOWN.load(Ordering::Relaxed) == pid {
        return true;
    }
    let all = syscall::proc_file::read("/proc/self/uid_map").is_ok_and(|map| maps_all(&map));
    if all {
        KNOWN.store(pid, Ordering::Relaxed);
    }
    all
}

fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::maps_all;

    #[test]
    fn maps_are_parsed() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_all(""));
    }
}
