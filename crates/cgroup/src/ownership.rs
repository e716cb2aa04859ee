//! Who asks.

use std::sync::atomic::{AtomicI32, Ordering};

/// Whether the calling process is root of the machine: user 0, in the first user namespace (or in one that maps every
/// id). Whoever is not has the groups only that somebody delegated to them.
pub(crate) fn is_machine_root() -> bool {
    rustix::process::geteuid().is_root() && maps_all_ids()
}

/// Reads the map once per process: one that was forked from this one may have entered another user namespace.
fn maps_all_ids() -> bool {
    /// The process whose map is known to have all ids; 0 for none.
    static KNOWN: AtomicI32 = AtomicI32::new(0);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if KNOWN.load(Ordering::Relaxed) == own {
        return true;
    }
    let all = syscall::proc_file::read("/proc/self/uid_map").is_ok_and(|map| maps_all(&map));
    if all {
        KNOWN.store(own, Ordering::Relaxed);
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
    fn reads_maps() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_all(""));
    }
}
