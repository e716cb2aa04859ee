//! Frames as bytes (RFC 6455, section 5).

use super::Malformed;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Most bytes before a client's frame's content.
pub(super) const HEAD_MAX: usize = 14;
/// In the second byte: as each frame of a client's must be.
pub(super) const MASKED: u8 = 0x80;
/// Most bytes of a control frame's content.
pub(super) const CONTROL_MAX: u64 = 125;

/// What stands before a client's frame's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last: bool,
    pub(super) opcode: u8,
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

impl Head {
    /// How long it is, by its first two bytes.
    pub(super) fn size(second: u8) -> usize {
        match second & 0x7f {
            126 => 8,
            127 => 14,
            _ => 6,
        }
    }

    /// Of as many bytes as [`Head::size`] says.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (first, second) = (bytes[0], bytes[1]);
        if first & 0x70 != 0 {
            return Err(Malformed("a frame of an extension"));
        }
        let (length, mask) = bytes[2..].split_at(bytes.len() - 6);
        let length = match length.len() {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        if length >> 63 != 0 {
            return Err(Malformed("a frame longer than there are"));
        }
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        match opcode {
            CONTINUATION | TEXT | BINARY => {}
            CLOSE | PING | PONG if last && length <= CONTROL_MAX => {}
            CLOSE | PING | PONG => return Err(Malformed("a control frame that is long or in pieces")),
            _ => return Err(Malformed("a frame of an unknown kind")),
        }
        Ok(Self { last, opcode, length, mask: [mask[0], mask[1], mask[2], mask[3]] })
    }
}

/// What goes before so many bytes of ours, a whole message.
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

/// A whole frame of ours.
pub(super) fn whole(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = head(opcode, content.len());
    frame.extend(content);
    frame
}
