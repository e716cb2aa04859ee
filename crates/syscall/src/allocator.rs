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
