//! ttrpc, the protocol of containerd's shims and of NRI plugins: requests in both directions over one stream socket.
//!
//! ```text
//! message  length: u32   stream: u32   kind: u8   flags: u8   payload
//! payload  of a request: service, method, argument, timeout       of a response: status, answer
//! ```
//! All numbers are big-endian. A [`Connection`] sends requests and serves those of its peer. How messages are framed is
//! up to a [`Receive`] and a [`Transmit`]: [`stream`] is the plain form; NRI splits messages into frames.
//!
//! # Rules
//! * **A peer costs at most the timeout of a request.** One that does not read, does not answer or sends garbage ends
//!   its connection; nothing else waits for it.
//! * **A message is at most [`PAYLOAD_MAX`] long,** or shorter ([`connect_with_limit`]). Memory is used for bytes that have
//!   arrived, not for those that a header promises, and an error repeats at most 256 bytes of what the peer sent.
//!
//! Protocol: <https://github.com/containerd/ttrpc/blob/main/PROTOCOL.md>, without streaming of several messages.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod connection;
mod envelope;
mod message;
mod stream;

pub use connection::{CallError, Connection, Service, refuse_all};
pub use envelope::{Request, Response, Status, code};
pub use message::{HEADER, Kind, Message, PAYLOAD_MAX, Receive, Transmit, encode, take};
pub use stream::{StreamReader, StreamWriter, connect, connect_with_limit, stream};
