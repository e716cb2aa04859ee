//! The kernel's memory that namespaces take.

use std::{fs, io};

use crate::Error;

/// Memory of the whole machine, from `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the kernel: `Slab`, `Percpu` and `KernelStack`. A network namespace consists of these.
    pub kernel: u64,
    /// Memory that programs can still get without swapping: `MemAvailable`.
    pub available: u64,
}

impl Memory {
    /// Reads the present values.
    ///
    /// # Errors
    /// When `/proc/meminfo` cannot be read.
    pub fn now() -> Result<Self, Error> {
        let fail = |e| Error::kernel("read", "/proc/meminfo", e);
        let text = fs::read_to_string("/proc/meminfo").map_err(fail)?;
        Self::parse(&text).ok_or_else(|| fail(io::ErrorKind::InvalidData.into()))
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        // Percpu: Linux 4.20.
        let kernel = value("Slab")? + value("Percpu").unwrap_or(0) + value("KernelStack")?;
        Some(Self { kernel, available: value("MemAvailable")? })
    }

    /// Returns the growth of the kernel's memory since `before` for each of `count` namespaces, in bytes. Everything else
    /// that the machine did in the meantime is in it, so it is accurate only for many namespaces on a quiet machine.
    #[must_use]
    pub fn per_namespace(&self, before: &Self, count: usize) -> u64 {
        self.kernel.saturating_sub(before.kernel) / (count.max(1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_added_up() {
        let text =
            "MemTotal: 9 kB\nMemAvailable:  8 kB\nSlab:   3 kB\nSReclaimable: 7 kB\nKernelStack: 2 kB\nPercpu: 1 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { kernel: 6 * 1024, available: 8 * 1024 }));
        assert_eq!(Memory::parse("Slab: 3 kB"), None);
        let before = Memory { kernel: 1000, available: 0 };
        assert_eq!(Memory { kernel: 4000, available: 0 }.per_namespace(&before, 3), 1000);
        assert_eq!(before.per_namespace(&Memory { kernel: 4000, available: 0 }, 0), 0);
    }
}
