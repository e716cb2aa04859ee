use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one: each container costs the daemon a few descriptors.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(current = ?limit.current, wanted = ?limit.maximum, "setrlimit NOFILE: {error}; many pods may not fit");
    }
}

/// Keeps glibc from giving every thread a heap of its own, which would never shrink again.
pub(crate) fn bound_memory() {
    syscall::allocator::bound_arenas(1);
}
