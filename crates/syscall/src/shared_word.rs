//! One word that a process and the children it forks see alike.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags};

/// A 64-bit word in an anonymous shared mapping (one page): children made by fork without `CLONE_VM` keep it in common
/// with their parent. Loads and stores are atomic and never block, whatever the other process waits for.
#[derive(Debug)]
pub struct SharedWord(NonNull<AtomicU64>);

impl SharedWord {
    /// Maps a word that is 0.
    ///
    /// # Errors
    /// `ENOMEM`, as mmap(2) gives it.
    pub fn new() -> io::Result<Self> {
        let (length, protection) = (size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let address =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::SHARED) }?;
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::Error::other("mmap gave address 0"))
    }

    /// Its value.
    pub fn load(&self) -> u64 {
        self.word().load(Ordering::SeqCst)
    }

    /// Changes it.
    pub fn store(&self, value: u64) {
        self.word().store(value, Ordering::SeqCst);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is page aligned, readable and writable, at least a word long and lives as long as self;
        // zero bytes are a valid AtomicU64, and all processes that have it access it atomically.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_zero_and_keeps_what_was_stored() {
        let word = SharedWord::new().expect("mmap");
        assert_eq!(word.load(), 0);
        word.store(u64::MAX - 1);
        assert_eq!(word.load(), u64::MAX - 1);
    }
}
