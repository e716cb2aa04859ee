//! What a child may hold of its parent's descriptors: a list of what it needs, nothing else (CVE-2024-21626).

use rustix::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::{Error, error::During};

/// Closes all but these, 0, 1, 2 (which are replaced later, and until then must not be given to something else) and so
/// many more that the container gets.
pub(crate) fn keep_only<'fd>(needed: impl Iterator<Item = BorrowedFd<'fd>>, preserve: u32) -> Result<(), Error> {
    let mut keep: Vec<RawFd> = (0..first_own(preserve)).chain(needed.map(|fd| fd.as_raw_fd())).collect();
    syscall::descriptors::close_all_but(&mut keep).during(|| "close the parent's descriptors")
}

/// Leaves what an owner holds open: a child closes everything at once ([`keep_only`]) before it waits. What lives until
/// then is a [`ManuallyDrop`](std::mem::ManuallyDrop) from the start, so that no error path closes it a second time.
pub(crate) fn leave<T>(owner: T) {
    std::mem::forget(owner);
}

/// What is left beyond the container's own ends at execve.
pub(crate) fn close_on_exec(preserve: u32) -> Result<(), Error> {
    syscall::descriptors::close_on_exec_from(first_own(preserve)).during(|| "mark descriptors close-on-exec")
}

/// The first that is not the container's.
fn first_own(preserve: u32) -> RawFd {
    RawFd::try_from(preserve).unwrap_or(RawFd::MAX).saturating_add(3)
}
