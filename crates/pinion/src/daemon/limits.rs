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

/// Blocks from this size on are mapped and unmapped one by one, which costs a page fault for every 4 KiB each time. The messages of
/// lists are smaller: the metrics of 300 pods take 3 MiB, in a buffer of 4.
const LARGE_BLOCK: u32 = 12 << 20;
/// Most free bytes at the top of the heap between two calls of [`release_memory`].
const FREE_TOP: u32 = 32 << 20;
/// So many free bytes are worth a walk over the heap.
const FREE: usize = 1 << 20;

/// Keeps the heap small: by default glibc gives every thread a heap of its own, and does not return memory to the kernel after a
/// large block was freed, such as 16 MiB of a command's output.
pub(crate) fn bound_memory() {
    syscall::allocator::bound_arenas(1);
    syscall::allocator::release_freed(LARGE_BLOCK, FREE_TOP);
}

/// Returns to the kernel what the heap has free, where that is more than `before` by now, what the last call returned: what went
/// back to the kernel counts as free, too.
pub(crate) fn release_memory(before: usize) -> usize {
    let free = syscall::allocator::free_bytes();
    if free < before + FREE {
        return free.min(before);
    }
    syscall::allocator::trim();
    syscall::allocator::free_bytes()
}
