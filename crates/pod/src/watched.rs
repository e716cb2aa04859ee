//! Descriptors of any kind in the runtime's epoll.

use std::{io, os::fd::AsRawFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers a descriptor.
///
/// The constructor is deprecated in favour of an unsafe one, for types whose descriptor may change or close while it is
/// registered; those given here own theirs for life.
#[expect(deprecated, reason = "its successor is unsafe code, which this crate has none of")]
pub(crate) fn watch<T: AsRawFd>(file: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(file, interest)
}
