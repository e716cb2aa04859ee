//! Frames, and their encoding.

use super::headers::{Deflater, Headers};

/// Protocol version in control frames.
pub(super) const VERSION: u16 = 3;
/// Length of a frame's head in bytes.
pub(super) const HEAD: usize = 8;

pub(super) const SYN_STREAM: u16 = 1;
pub(super) const SYN_REPLY: u16 = 2;
pub(super) const RST_STREAM: u16 = 3;
pub(super) const SETTINGS: u16 = 4;
pub(super) const PING: u16 = 6;
pub(super) const GOAWAY: u16 = 7;
pub(super) const HEADERS: u16 = 8;
pub(super) const WINDOW_UPDATE: u16 = 9;

pub(super) const FLAG_FIN: u8 = 1;
pub(super) const FLAG_UNIDIRECTIONAL: u8 = 2;

/// Status codes of RST_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reset {
    InvalidStream = 2,
    Refused = 3,
    Cancel = 5,
    FlowControlError = 7,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Data { stream: u32, fin: bool, length: usize },
    Control { version: u16, kind: u16, flags: u8, length: usize },
}

impl Head {
    pub(super) fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, d, flags, l1, l2, l3] = bytes;
        let first = u32::from_be_bytes([a, b, c, d]);
        let length = u32::from_be_bytes([0, l1, l2, l3]) as usize;
        if first >> 31 == 0 {
            Self::Data { stream: first, fin: flags & FLAG_FIN != 0, length }
        } else {
            Self::Control { version: (first >> 16) as u16 & 0x7fff, kind: first as u16, flags, length }
        }
    }
}

/// A frame from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The peer opens a stream.
    SynStream {
        /// Stream id.
        stream: u32,
        /// Whether the peer sends no data on it.
        fin: bool,
        /// Whether no data may be sent to the peer on it.
        unidirectional: bool,
        /// Headers of the stream.
        headers: Headers,
    },
    /// The peer accepts a stream of ours.
    SynReply {
        /// Stream id.
        stream: u32,
    },
    /// The peer ends a stream in both directions.
    RstStream {
        /// Stream id.
        stream: u32,
        /// Status code.
        status: u32,
    },
    /// The peer's settings.
    Settings {
        /// Initial window of new streams in bytes.
        initial_window: Option<u32>,
    },
    /// A ping of the peer, or the reply to one of ours.
    Ping {
        /// Ping id; even ids are ours.
        id: u32,
    },
    /// The peer opens no more streams.
    GoAway,
    /// Additional headers of a stream.
    Headers {
        /// Stream id.
        stream: u32,
        /// Whether the peer sends no more data on it.
        fin: bool,
    },
    /// The peer opens a window.
    WindowUpdate {
        /// Stream id; 0 is the connection.
        stream: u32,
        /// Number of additional bytes.
        delta: u32,
    },
    /// Data of a stream.
    Data {
        /// Stream id.
        stream: u32,
        /// Whether this is the last data of the stream.
        fin: bool,
        /// Number of bytes.
        length: usize,
    },
    /// A frame type that must be ignored.
    Unknown,
}

fn control(kind: u16, flags: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + content.len());
    frame.extend((0x8000 | VERSION).to_be_bytes());
    frame.extend(kind.to_be_bytes());
    frame.extend((u32::from(flags) << 24 | content.len() as u32).to_be_bytes());
    frame.extend(content);
    frame
}

fn pair(kind: u16, first: u32, second: u32) -> Vec<u8> {
    let mut content = [0; 8];
    content[..4].copy_from_slice(&first.to_be_bytes());
    content[4..].copy_from_slice(&second.to_be_bytes());
    control(kind, 0, &content)
}

/// Encodes the head of a data frame.
pub(super) fn data_head(stream: u32, fin: bool, length: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&stream.to_be_bytes());
    let flags = if fin { u32::from(FLAG_FIN) << 24 } else { 0 };
    head[4..].copy_from_slice(&(flags | length as u32).to_be_bytes());
    head
}

pub(super) fn syn_reply(deflater: &mut Deflater, stream: u32) -> Vec<u8> {
    let mut content = stream.to_be_bytes().to_vec();
    content.extend(deflater.block(&[]));
    control(SYN_REPLY, 0, &content)
}

pub(super) fn rst_stream(stream: u32, reset: Reset) -> Vec<u8> {
    pair(RST_STREAM, stream, reset as u32)
}

pub(super) fn ping(id: u32) -> Vec<u8> {
    control(PING, 0, &id.to_be_bytes())
}

pub(super) fn window_update(stream: u32, delta: u32) -> Vec<u8> {
    pair(WINDOW_UPDATE, stream, delta)
}

pub(super) fn go_away(last_stream: u32, protocol_error: bool) -> Vec<u8> {
    pair(GOAWAY, last_stream, u32::from(protocol_error))
}
