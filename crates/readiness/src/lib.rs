//! Registers descriptors in the epoll instance of the async runtime only for the events that are needed.
//!
//! tokio registers its sockets for writing too. A Unix socket becomes writable each time the peer reads something
//! (`unix_write_space` in the kernel), so each response and each request would wake a thread of the runtime a second
//! time, for nothing. This crate registers a socket for writing only while it is full.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod connection;
mod write_readiness;

use std::{io, os::fd::AsRawFd};

use tokio::io::{Interest, unix::AsyncFd};

pub use connection::Connection;
pub use write_readiness::WriteReadiness;

/// Registers a descriptor of any kind. Must be called within a runtime.
///
/// The constructor of tokio is deprecated in favor of an unsafe one, for types whose descriptor may change or be closed
/// while it is registered. The types that are passed here own a descriptor that never changes.
///
/// # Errors
/// The errors of epoll_ctl(2): a regular file, no memory, too many watches of the user.
#[expect(deprecated, reason = "its replacement is unsafe, and this crate forbids unsafe code")]
pub fn watch<T: AsRawFd>(file: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(file, interest)
}
