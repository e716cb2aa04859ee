//! The memory of the machine.

use std::fs;

/// Part of the memory that pods never take: a machine without any ends processes.
const RESERVE: u64 = 10;

/// Memory of the machine, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    total: u64,
    /// What programs can have without swapping (`MemAvailable`, Linux 3.14): caches count as available.
    pub(super) available: u64,
}

impl Memory {
    /// Reads it; `None` if the kernel does not report it.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
        Some(Self { total: field("MemTotal:")?, available: field("MemAvailable:")? })
    }

    /// Returns whether pods took as much of what was available `before` as they may, or leave only the reserve.
    pub(super) fn is_used_up(&self, before: Self, budget_kib: Option<u64>) -> bool {
        let used = before.available.saturating_sub(self.available);
        self.available < self.total / RESERVE || budget_kib.is_some_and(|budget| used >= budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_up_by_the_budget_or_at_the_reserve() {
        let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    800 kB\n";
        let before = Memory { total: 1000, available: 800 };
        assert_eq!((Memory::parse(text), Memory::parse("MemTotal: 1 kB")), (Some(before), None));
        let at = |available| Memory { total: 1000, available };
        assert!(!at(500).is_used_up(before, None) && at(99).is_used_up(before, None));
        assert!(at(500).is_used_up(before, Some(300)) && !at(501).is_used_up(before, Some(300)));
        assert!(at(99).is_used_up(before, Some(10_000)));
    }
}
