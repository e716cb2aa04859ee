//! Passes a descriptor from one thread to another without a system call.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};

const EMPTY: i32 = -1;

/// A cell that holds a descriptor or is empty. For a thread that cannot make system calls anymore: `put` is one atomic
/// store, `take` one atomic exchange.
#[derive(Debug)]
pub struct DescriptorCell(AtomicI32);

impl Default for DescriptorCell {
    fn default() -> Self {
        Self(AtomicI32::new(EMPTY))
    }
}

impl DescriptorCell {
    /// Puts a descriptor into the cell. A descriptor that was in the cell is leaked.
    pub fn put(&self, descriptor: OwnedFd) {
        self.0.store(descriptor.into_raw_fd(), Ordering::Release);
    }

    /// Takes the descriptor out of the cell.
    pub fn take(&self) -> Option<OwnedFd> {
        match self.0.swap(EMPTY, Ordering::Acquire) {
            EMPTY => None,
            // SAFETY: `put` stored a descriptor that it owned, and the exchange returns each to one caller only.
            descriptor => Some(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_taken_once() {
        let cell = DescriptorCell::default();
        assert!(cell.take().is_none());
        cell.put(std::fs::File::open("/dev/null").expect("open").into());
        let taken = cell.take().expect("the cell is empty");
        rustix::io::fcntl_getfd(&taken).expect("the descriptor is closed");
        assert!(cell.take().is_none());
    }
}
