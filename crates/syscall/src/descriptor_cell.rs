//! A place in which one thread leaves a descriptor for another, without a system call.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};

const EMPTY: i32 = -1;

/// Holds a descriptor or nothing. For a thread that can call nothing of the kernel any more: one store leaves it, one
/// exchange takes it.
#[derive(Debug)]
pub struct DescriptorCell(AtomicI32);

impl Default for DescriptorCell {
    fn default() -> Self {
        Self(AtomicI32::new(EMPTY))
    }
}

impl DescriptorCell {
    /// Leaves a descriptor. One that was there before stays open and is nobody's.
    pub fn put(&self, descriptor: OwnedFd) {
        self.0.store(descriptor.into_raw_fd(), Ordering::Release);
    }

    /// Takes what is there.
    pub fn take(&self) -> Option<OwnedFd> {
        match self.0.swap(EMPTY, Ordering::Acquire) {
            EMPTY => None,
            // SAFETY: `put` gave up a descriptor it owned, and the exchange gives each to one taker only.
            descriptor => Some(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_once() {
        let cell = DescriptorCell::default();
        assert!(cell.take().is_none());
        cell.put(std::fs::File::open("/dev/null").expect("open").into());
        let taken = cell.take().expect("it is there");
        rustix::io::fcntl_getfd(&taken).expect("it is open");
        assert!(cell.take().is_none());
    }
}
