//! Limits of what a module may allocate in addition to its memories, which the cgroup of the container limits.

use wasmtime::{ResourceLimiter, Result};

/// Elements of one table, of eight bytes each.
const ELEMENTS_MAX: usize = 10_000_000;
/// Instances, tables and memories of one store.
const OBJECTS_MAX: usize = 1000;

/// The limits of one store.
#[derive(Clone, Copy)]
pub(crate) struct Limits;

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        Ok(maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn table_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        Ok(desired <= ELEMENTS_MAX && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        OBJECTS_MAX
    }

    fn tables(&self) -> usize {
        OBJECTS_MAX
    }

    fn memories(&self) -> usize {
        OBJECTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_table_is_refused() {
        assert!(Limits.table_growing(0, ELEMENTS_MAX, None).unwrap());
        assert!(!Limits.table_growing(0, ELEMENTS_MAX + 1, None).unwrap());
        assert!(!Limits.table_growing(0, 11, Some(10)).unwrap());
        assert!(!Limits.memory_growing(0, 11, Some(10)).unwrap());
    }
}
