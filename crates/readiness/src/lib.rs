//! Descriptors in the epoll instance of the async runtime, watched for what they are used for.
//!
//! The sockets of tokio are watched for room to write, too. On a Unix socket there is room each time that the peer
//! takes something (`unix_write_space` in the kernel), so each answer and each request would wake a thread of the
//! runtime a second time, for nothing. Here room is watched for while there is none.

#![forbid(unsafe_code)]

mod connection;
mod room;

use std::{io, os::fd::AsRawFd};

use tokio::io::{Interest, unix::AsyncFd};

pub use connection::Connection;
pub use room::Room;

/// Watches a descriptor of any kind. Must be called within a runtime.
///
/// The constructor is deprecated in favour of an unsafe one, for types whose descriptor may change or close while it is
/// registered; those given here own theirs for life.
///
/// # Errors
/// Those of epoll_ctl(2): a regular file, no memory, too many watches of the user.
#[expect(deprecated, reason = "its successor is unsafe code, which this crate has none of")]
pub fn watch<T: AsRawFd>(file: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(file, interest)
}
