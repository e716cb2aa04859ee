//! The server side of WebSocket (RFC 6455), with channels: each message is data of one channel.
//!
//! Extensions and compression are not supported. Messages are not reassembled: their data is passed on as it arrives,
//! so the length of a message does not matter. Only messages in base64 are buffered, up to a limit.

mod connection;
mod demultiplexer;
mod frame;
mod malformed;
mod tunnel;

pub use demultiplexer::{Codec, Demultiplexer, Event};
pub use malformed::Malformed;

pub(crate) use connection::{Outlet, connect};
pub(crate) use tunnel::tunnel;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The constant that is appended to a client's key (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Computes `Sec-WebSocket-Accept` from `Sec-WebSocket-Key`.
pub(crate) fn accept(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    STANDARD.encode(digest)
}

#[cfg(test)]
mod tests;
