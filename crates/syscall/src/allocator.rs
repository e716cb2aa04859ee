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
