use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, setrlimit};

/// As it was when the program started. The engine raises it, and gives it to containers as it was.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// To be called before the engine is opened.
pub(crate) fn remember_open_files() {
    match syscall::resource_limit::get(Resource::Nofile) {
        Ok(limit) => drop(OPEN_FILES.set(limit)),
        Err(error) => tracing::warn!("read the limit of open files: {error}; an upgrade will not restore it"),
    }
}

/// Makes it what it was, for a program that is executed next.
pub(crate) fn restore_open_files() {
    if let Some(limit) = OPEN_FILES.get() {
        // Lowering is always allowed.
        let _ = setrlimit(Resource::Nofile, *limit);
    }
}

/// Keeps glibc from giving every thread a heap of its own, which would never shrink again.
pub(crate) fn bound_memory() {
    syscall::allocator::bound_arenas(1);
}
