//! The heap of the C library.

/// Limits the number of glibc's arenas (`M_ARENA_MAX`, mallopt(3)); does nothing with another C library. To be called
/// before threads are started. Each additional arena keeps what its threads once needed, and rarely releases it.
pub fn limit_arenas(arenas: u8) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters, under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, libc::c_int::from(arenas));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = arenas;
}

/// Allocates blocks of `block` bytes or more by mmap, so that they are unmapped when freed, and returns the top of the
/// heap to the kernel when more than `top` bytes of it are free (`M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD`,
/// mallopt(3)). Only for glibc, which by default raises both thresholds (up to 32 and 64 MiB) when large blocks are
/// freed, and from then on keeps that much.
pub fn set_release_thresholds(block: u32, top: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters, under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, libc::c_int::try_from(block).unwrap_or(libc::c_int::MAX));
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::try_from(top).unwrap_or(libc::c_int::MAX));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (block, top);
}

/// Returns the number of free bytes in the heap, at its top and between used blocks (mallinfo2(3)). 0 without glibc.
#[must_use]
pub fn free_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallinfo2 has no arguments and reads the allocator's own state under its lock.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns all free pages of the heap to the kernel, wherever they are (malloc_trim(3)). The heap is locked during the
/// call. Does nothing without glibc.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and releases only unallocated memory, under the allocator's lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets the heap of a short-lived program grow in steps of `bytes` and never shrink, to save calls of brk(2). glibc
/// only.
pub fn grow_by(bytes: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters, under its own lock.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX));
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
