//! A small file mapped into memory, whose content outlives the process that writes it.

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

/// A file mapped shared and locked: what is stored into it is there for a successor, whenever this process is killed.
///
/// The lock (`flock(2)`, exclusive) is what makes handing out `&mut` sound between processes that keep to it: nobody else
/// maps a file that is locked. A child gets no copy of the mapping, which would keep the lock after this process's end
/// (so a clone must not share memory). The file's blocks are allocated at once, so a full file system gives an error and no SIGBUS.
#[derive(Debug)]
pub struct SharedMemory {
    address: NonNull<u8>,
    length: usize,
    _file: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, wherever it is; nothing of it is bound to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps the first `length` bytes of a file opened read-write; it grows to that length, new bytes are zero.
    ///
    /// # Errors
    /// `EWOULDBLOCK`: another process has it mapped; `ENOSPC`; and whatever mmap(2) gives.
    pub fn map(file: OwnedFd, length: usize) -> io::Result<Self> {
        rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
        Self::map_locked(file, length)
    }

    /// As [`SharedMemory::map`], but waits (without a limit) until no other process has the file mapped.
    ///
    /// # Errors
    /// `ENOSPC`, and whatever mmap(2) gives.
    pub fn map_when_free(file: OwnedFd, length: usize) -> io::Result<Self> {
        loop {
            match rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                locked => break locked?,
            }
        }
        Self::map_locked(file, length)
    }

    fn map_locked(file: OwnedFd, length: usize) -> io::Result<Self> {
        rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, length as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
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
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let memory = Self { address, length, _file: file };
        // SAFETY: the range is the mapping just made; the advice takes it from children, and changes nothing here.
        unsafe { rustix::mm::madvise(memory.address.as_ptr().cast(), length, rustix::mm::Advice::LinuxDontFork) }?;
        // Resident, so that no page fault stands between a system call and these bytes. Without the right to: as it was.
        // SAFETY: the same range; locking changes no content.
        let _ = unsafe { rustix::mm::mlock(memory.address.as_ptr().cast(), length) };
        Ok(memory)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long and lives as long as self; the lock keeps other writers away.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }

    /// The bytes, to be written. Stores reach the file in program order as seen by a successor of this process.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and self is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.length) }
    }

    /// Stores a word so that all stores before it in the program are there for whoever sees it, and none after it is.
    ///
    /// # Panics
    /// Where `offset` is not a multiple of four within the mapping.
    pub fn publish(&mut self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length, "word at {offset} of {}", self.length);
        // SAFETY: aligned (mmap gives page alignment) and inside the mapping, as just checked; borrowed exclusively.
        let word = unsafe { AtomicU32::from_ptr(self.address.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_there_for_the_next_and_never_for_two() {
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
