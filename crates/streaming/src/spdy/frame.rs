//! Frames as bytes.

use super::headers::{Deflater, Headers};

/// Version that control frames tell.
pub(super) const VERSION: u16 = 3;
/// Bytes before each frame's content.
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

/// Why a stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reset {
    InvalidStream = 2,
    Refused = 3,
    Cancel = 5,
    FlowControlError = 7,
}

/// The eight bytes before each frame's content.
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

/// A frame that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A stream is opened.
    SynStream {
        /// Its id.
        stream: u32,
        /// The peer sends nothing on it.
        fin: bool,
        /// Nothing may be sent to the peer on it.
        unidirectional: bool,
        /// What it is for.
        headers: Headers,
    },
    /// A stream of ours is taken.
    SynReply {
        /// Its id.
        stream: u32,
    },
    /// A stream ended in both directions.
    RstStream {
        /// Its id.
        stream: u32,
        /// Why.
        status: u32,
    },
    /// How the peer wants it.
    Settings {
        /// The window of new streams, in bytes.
        initial_window: Option<u32>,
    },
    /// To be sent back, or what was sent.
    Ping {
        /// Even: ours.
        id: u32,
    },
    /// The peer opens no more streams.
    GoAway,
    /// More about a stream.
    Headers {
        /// Its id.
        stream: u32,
        /// The peer sends no more on it.
        fin: bool,
    },
    /// More may be sent.
    WindowUpdate {
        /// Its id; 0 is the connection.
        stream: u32,
        /// So many bytes more.
        delta: u32,
    },
    /// Bytes of a stream.
    Data {
        /// Its id.
        stream: u32,
        /// The last ones.
        fin: bool,
        /// How many.
        length: usize,
    },
    /// A kind that is to be ignored.
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

/// What goes before so many bytes of a stream.
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
