//! The C library's heap.

/// Keeps glibc to so many heaps (`mallopt(M_ARENA_MAX)`, mallopt(3)); elsewhere nothing happens. Call it before threads
/// start. Each further heap holds what its threads once needed and rarely gives it back.
pub fn bound_arenas(arenas: u8) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters, under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, libc::c_int::from(arenas));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = arenas;
}

/// Gives each block of `block` bytes or more a mapping of its own, which is unmapped when it is freed, and returns the
/// top of the heap to the kernel when more than `top` bytes of it are free (`M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD`,
/// mallopt(3)). glibc only: by default it raises both limits, to 32 and 64 MiB, as large blocks are freed, and keeps so
/// much from then on.
pub fn release_freed(block: u32, top: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters, under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, libc::c_int::try_from(block).unwrap_or(libc::c_int::MAX));
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::try_from(top).unwrap_or(libc::c_int::MAX));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (block, top);
}

/// Bytes of the heap that are free, at its top and between blocks that are used (`mallinfo2(3)`). 0 without glibc.
#[must_use]
pub fn free_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallinfo2 takes nothing and reads the allocator's own state under its lock.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns to the kernel all pages of the heap that are free, wherever they are (`malloc_trim(3)`). The heap is locked
/// meanwhile. Without glibc nothing happens.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and gives back only what nobody has allocated, under the allocator's lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets the heap of a short-lived program grow by so much at a time, and never shrink: fewer brk(2). glibc only.
pub fn grow_by(bytes: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: as above.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX));
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
