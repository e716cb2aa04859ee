//! A word that a process shares with the children that it forks.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags};

/// A 64-bit word in an anonymous shared mapping (one page), which children created without `CLONE_VM` share with their
/// parent. Loads and stores are atomic and never block, whatever the other process waits for.
#[derive(Debug)]
pub struct SharedWord(NonNull<AtomicU64>);

impl SharedWord {
    /// Maps a word that is initially 0.
    ///
    /// # Errors
    /// `ENOMEM` of mmap(2).
    pub fn new() -> io::Result<Self> {
        let (length, protection) = (size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let address =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::SHARED) }?;
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::Error::other("mmap returned address 0"))
    }

    /// Loads the value.
    pub fn load(&self) -> u64 {
        self.word().load(Ordering::SeqCst)
    }

    /// Stores a value.
    pub fn store(&self, value: u64) {
        self.word().store(value, Ordering::SeqCst);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is page-aligned, readable and writable, at least a word long and lives as long as self;
        // zero bytes are a valid AtomicU64, and all processes that share it access it atomically.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_zero_until_it_is_stored() {
        let word = SharedWord::new().expect("mmap");
        assert_eq!(word.load(), 0);
        word.store(u64::MAX - 1);
        assert_eq!(word.load(), u64::MAX - 1);
    }
}
