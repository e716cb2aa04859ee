//! A small file that is mapped into memory, so that its contents outlive the process that writes them.

use std::{
    io,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FallocateFlags, FlockOperation},
    mm::{MapFlags, ProtFlags},
};

/// A file that is mapped shared and locked: stores are visible to a successor process, whenever this process is killed.
///
/// The exclusive lock (flock(2)) makes `&mut` access sound between processes that follow the protocol: no other process
/// maps a locked file. A child does not inherit the mapping, which would hold the lock after the exit of this process
/// (so a clone must not share memory). The blocks of the file are allocated in advance, so that a full file system
/// results in an error and not in SIGBUS.
#[derive(Debug)]
pub struct SharedMemory {
    address: NonNull<u8>,
    length: usize,
    _file: OwnedFd,
}

// SAFETY: only this value owns the mapping, which is not bound to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps the first `length` bytes of a file opened read-write. A shorter file is extended with zeros.
    ///
    /// # Errors
    /// `EWOULDBLOCK`: another process has mapped it; `ENOSPC`; and those of mmap(2).
    pub fn map(file: OwnedFd, length: usize) -> io::Result<Self> {
        rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
        Self::map_locked(file, length)
    }

    /// Maps a file as [`SharedMemory::map`] does, but waits without a timeout until no other process has mapped it.
    ///
    /// # Errors
    /// `ENOSPC`, and those of mmap(2).
    pub fn map_when_free(file: OwnedFd, length: usize) -> io::Result<Self> {
        loop {
            match rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result?,
            }
        }
        Self::map_locked(file, length)
    }

    fn map_locked(file: OwnedFd, length: usize) -> io::Result<Self> {
        rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, length as u64)?;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        let memory = Self { address, length, _file: file };
        // SAFETY: the range is that of the new mapping; the advice only affects children.
        unsafe { rustix::mm::madvise(memory.address.as_ptr().cast(), length, rustix::mm::Advice::LinuxDontFork) }?;
        // Keep the pages resident, so that an access right after a system call does not fault; not if unprivileged.
        // SAFETY: the same range; locking does not change the contents.
        let _ = unsafe { rustix::mm::mlock(memory.address.as_ptr().cast(), length) };
        Ok(memory)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long and lives as long as self; the lock excludes other writers.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }

    /// Returns the bytes for writing. A successor of this process sees the stores in program order.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and self is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.length) }
    }

    /// Stores a word with sequentially consistent ordering: a process that sees it also sees all earlier stores, and no
    /// later one is moved before it.
    ///
    /// # Panics
    /// If `offset` is not a multiple of four within the mapping.
    pub fn publish(&mut self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length, "word at {offset} of {}", self.length);
        // SAFETY: the word is aligned (mmap returns page alignment) and in the mapping, as checked above; self is
        // borrowed exclusively.
        let word = unsafe { AtomicU32::from_ptr(self.address.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no slice of it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_visible_to_the_next_and_only_one_process_maps() {
        let file = || {
            let memfd = rustix::fs::memfd_create(c"shared", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memfd));
            (memfd, path)
        };
        let open =
            |path: &str| OwnedFd::from(std::fs::OpenOptions::new().read(true).write(true).open(path).expect("open"));
        let (memfd, path) = file();
        let mut first = SharedMemory::map(open(&path), 8192).expect("map");
        first.bytes_mut()[5000] = 7;
        first.publish(4, 42);
        let busy = SharedMemory::map(open(&path), 8192).expect_err("locked");
        assert_eq!(busy.raw_os_error(), Some(libc::EWOULDBLOCK));
        drop(first);
        // A child that another test has cloned in the meantime holds the lock until it executes a program or exits.
        let second = SharedMemory::map_when_free(open(&path), 8192).expect("map again");
        assert_eq!((second.bytes()[5000], &second.bytes()[4..8]), (7, &42u32.to_ne_bytes()[..]));
        drop(memfd);
    }
}
