//! WebSocket (RFC 6455) as a server, and channels within it: one message is bytes of one channel.
//!
//! Nothing is extended or compressed, and messages are never gathered: what there is of one is handed on, so that a
//! message of any length costs no memory. Only those in base64 are gathered, and bounded.

mod connection;
mod demultiplexer;
mod frame;
mod tunnel;

pub use demultiplexer::{Codec, Demultiplexer, Event, Malformed};

pub(crate) use connection::{Outlet, connect};
pub(crate) use tunnel::tunnel;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// What is appended to a client's key (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
pub(crate) fn accept(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    STANDARD.encode(digest)
}

#[cfg(test)]
mod tests;
