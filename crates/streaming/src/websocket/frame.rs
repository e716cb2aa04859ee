//! The encoding of frames (RFC 6455, section 5).

use super::malformed::Malformed;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Maximum length of the head of a client's frame in bytes.
pub(super) const HEAD_MAX: usize = 14;
/// Bit of the second byte; it must be set in all frames of a client.
pub(super) const MASKED: u8 = 0x80;
/// Maximum content of a control frame in bytes.
pub(super) const CONTROL_MAX: u64 = 125;

/// The head of a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last: bool,
    pub(super) opcode: u8,
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

impl Head {
    /// Returns the length of the head, which its second byte determines.
    pub(super) fn size(second: u8) -> usize {
        match second & 0x7f {
            126 => 8,
            127 => 14,
            _ => 6,
        }
    }

    /// Parses a head; `bytes` has the length that [`Head::size`] returns.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (first, second) = (bytes[0], bytes[1]);
        if first & 0x70 != 0 {
            return Err(Malformed("a frame with reserved bits"));
        }
        let (length, mask) = bytes[2..].split_at(bytes.len() - 6);
        let length = match length.len() {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        if length >> 63 != 0 {
            return Err(Malformed("a frame that exceeds the maximum length"));
        }
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        match opcode {
            CONTINUATION | TEXT | BINARY => {}
            CLOSE | PING | PONG if last && length <= CONTROL_MAX => {}
            CLOSE | PING | PONG => return Err(Malformed("a control frame that is too long or fragmented")),
            _ => return Err(Malformed("a frame with an unknown opcode")),
        }
        Ok(Self { last, opcode, length, mask: [mask[0], mask[1], mask[2], mask[3]] })
    }
}

/// Encodes the head of an unfragmented message of the server.
pub(super) fn head(opcode: u8, length: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(11);
    head.push(0x80 | opcode);
    match length {
        0..=125 => head.push(length as u8),
        126..=0xffff => {
            head.push(126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head
}

/// Encodes an unfragmented frame of the server.
pub(super) fn encode(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = head(opcode, content.len());
    frame.extend(content);
    frame
}
