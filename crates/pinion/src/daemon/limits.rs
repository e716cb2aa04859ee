use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, setrlimit};

/// The limit of open files when the program started. The engine raises it, but starts containers with the original one.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Records the limit of open files. Must be called before the engine is opened.
pub(crate) fn remember_open_files() {
    match syscall::resource_limit::get(Resource::Nofile) {
        Ok(limit) => drop(OPEN_FILES.set(limit)),
        Err(error) => tracing::warn!("read the limit of open files: {error}; an upgrade will not restore it"),
    }
}

/// Restores the limit of open files before another program is executed.
pub(crate) fn restore_open_files() {
    if let Some(limit) = OPEN_FILES.get() {
        // Lowering a limit always succeeds.
        let _ = setrlimit(Resource::Nofile, *limit);
    }
}

/// Blocks of at least this size are mapped and unmapped one by one, which costs a page fault for every 4 KiB each time.
/// The messages of lists are smaller: the metrics of 300 pods take 3 MiB, in a buffer of 4 MiB.
const LARGE_BLOCK: u32 = 12 << 20;
/// Maximum free bytes at the top of the heap between two calls of [`release_memory`].
const FREE_TOP: u32 = 32 << 20;
/// Minimum of newly freed bytes for which the heap is trimmed.
const TRIM_MIN: usize = 1 << 20;

/// Keeps the heap small: by default, glibc does not return memory to the kernel after a large block was freed, such as 16 MiB of
/// output. It has one arena (`main`).
pub(crate) fn bound_memory() {
    syscall::allocator::set_release_thresholds(LARGE_BLOCK, FREE_TOP);
}

/// Returns free memory of the heap to the kernel, if it has grown by [`TRIM_MIN`] since the last call, which returned
/// `before`. Memory that was returned to the kernel still counts as free.
pub(crate) fn release_memory(before: usize) -> usize {
    let free = syscall::allocator::free_bytes();
    if free < before + TRIM_MIN {
        return free.min(before);
    }
    syscall::allocator::trim();
    syscall::allocator::free_bytes()
}
