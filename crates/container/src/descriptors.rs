//! Descriptors that a child keeps of its parent's: only those that it needs (CVE-2024-21626).

use rustix::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::{Error, error::During};

/// Closes all descriptors except `needed`, 0, 1 and 2 (which are replaced later, and must not be reused before), and
/// the `preserve_fds` that the container inherits.
pub(crate) fn keep_only<'fd>(needed: impl Iterator<Item = BorrowedFd<'fd>>, preserve_fds: u32) -> Result<(), Error> {
    let mut keep: Vec<RawFd> = (0..first_not_inherited(preserve_fds)).chain(needed.map(|fd| fd.as_raw_fd())).collect();
    syscall::descriptors::close_all_except(&mut keep).during(|| "close the parent's descriptors")
}

/// Forgets the owner of descriptors without closing them: a child closes all of them at once ([`keep_only`]) before it
/// waits. Owners that live until then are [`ManuallyDrop`](std::mem::ManuallyDrop) from the start, so that no error
/// path closes a descriptor twice.
pub(crate) fn leave<T>(owner: T) {
    std::mem::forget(owner);
}

/// Marks all descriptors close-on-exec except stdio and those that the container inherits.
pub(crate) fn close_on_exec(preserve_fds: u32) -> Result<(), Error> {
    syscall::descriptors::close_on_exec_from(first_not_inherited(preserve_fds))
        .during(|| "mark descriptors close-on-exec")
}

/// Returns the first descriptor that the container does not inherit.
fn first_not_inherited(preserve_fds: u32) -> RawFd {
    RawFd::try_from(preserve_fds).unwrap_or(RawFd::MAX).saturating_add(3)
}
