//! Decodes a peer's bytes into frames: pure, with bounded memory.

use super::{
    frame::{
        FLAG_FIN, FLAG_UNIDIRECTIONAL, Frame, GOAWAY, HEAD, HEADERS, Head, PING, RST_STREAM, SETTINGS, SYN_REPLY,
        SYN_STREAM, VERSION, WINDOW_UPDATE,
    },
    headers::Inflater,
    malformed::Malformed,
};

/// Maximum content of a control frame in bytes.
pub(super) const CONTROL_MAX: usize = 16 * 1024;
/// Id of the setting `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW: u32 = 7;

/// Decodes control frames. It must decode all of a connection's, because their headers are one compressed stream.
#[derive(Debug, Default)]
pub struct Decoder {
    inflater: Inflater,
}

impl Decoder {
    /// Decodes all complete frames of these bytes. An incomplete frame at the end is ignored. The content of data
    /// frames is only counted.
    ///
    /// # Errors
    /// The first violation of the protocol.
    pub fn frames(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, Malformed> {
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while let Some((head, content)) = rest.split_first_chunk::<HEAD>() {
            let head = Head::parse(*head);
            check(&head)?;
            let (Head::Data { length, .. } | Head::Control { length, .. }) = head;
            let Some((content, after)) = content.split_at_checked(length) else { break };
            frames.push(match head {
                Head::Data { stream, fin, length } => Frame::Data { stream, fin, length },
                Head::Control { kind, flags, .. } => self.control(kind, flags, content)?,
            });
            rest = after;
        }
        Ok(frames)
    }

    /// Decodes a control frame with this content.
    pub(super) fn control(&mut self, kind: u16, flags: u8, content: &[u8]) -> Result<Frame, Malformed> {
        let fin = flags & FLAG_FIN != 0;
        match kind {
            SYN_STREAM => {
                let stream = stream(content)?;
                let block = content.get(10..).ok_or(Malformed("a truncated SYN_STREAM"))?;
                let headers = self.inflater.block(block)?;
                Ok(Frame::SynStream { stream, fin, unidirectional: flags & FLAG_UNIDIRECTIONAL != 0, headers })
            }
            SYN_REPLY => {
                let stream = stream(content)?;
                self.inflater.block(&content[4..])?;
                Ok(Frame::SynReply { stream })
            }
            RST_STREAM => {
                let [_, status] = pair(content)?;
                Ok(Frame::RstStream { stream: stream(content)?, status })
            }
            SETTINGS => settings(content),
            PING => match content.first_chunk::<4>() {
                Some(id) if content.len() == 4 => Ok(Frame::Ping { id: u32::from_be_bytes(*id) }),
                _ => Err(Malformed("a PING with an invalid length")),
            },
            GOAWAY => pair(content).map(|_| Frame::GoAway),
            HEADERS => {
                let stream = stream(content)?;
                self.inflater.block(&content[4..])?;
                Ok(Frame::Headers { stream, fin })
            }
            WINDOW_UPDATE => {
                let [stream, delta] = pair(content)?;
                let delta = delta & 0x7fff_ffff;
                if delta == 0 {
                    return Err(Malformed("a WINDOW_UPDATE of zero bytes"));
                }
                Ok(Frame::WindowUpdate { stream: stream & 0x7fff_ffff, delta })
            }
            _ => Ok(Frame::Unknown),
        }
    }
}

/// Validates the head of a frame.
pub(super) fn check(head: &Head) -> Result<(), Malformed> {
    match head {
        Head::Data { stream: 0, .. } => Err(Malformed("data with the stream id 0")),
        Head::Control { version, .. } if *version != VERSION => Err(Malformed("a frame with an unsupported version")),
        Head::Control { length, .. } if *length > CONTROL_MAX => Err(Malformed("a control frame that is too large")),
        _ => Ok(()),
    }
}

fn stream(content: &[u8]) -> Result<u32, Malformed> {
    let id = content.first_chunk::<4>().ok_or(Malformed("a truncated control frame"))?;
    match u32::from_be_bytes(*id) & 0x7fff_ffff {
        0 => Err(Malformed("a frame with the stream id 0")),
        id => Ok(id),
    }
}

fn pair(content: &[u8]) -> Result<[u32; 2], Malformed> {
    match content.first_chunk::<8>() {
        Some([a, b, c, d, e, f, g, h]) if content.len() == 8 => {
            Ok([u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])])
        }
        _ => Err(Malformed("a control frame with an invalid length")),
    }
}

fn settings(content: &[u8]) -> Result<Frame, Malformed> {
    let (count, entries) = content.split_first_chunk::<4>().ok_or(Malformed("truncated SETTINGS"))?;
    if entries.len() % 8 != 0 || entries.len() / 8 != u32::from_be_bytes(*count) as usize {
        return Err(Malformed("SETTINGS with an invalid length"));
    }
    let (mut initial_window, (entries, _)) = (None, entries.as_chunks::<8>());
    for entry in entries {
        let [_, a, b, c, v1, v2, v3, v4] = *entry;
        if u32::from_be_bytes([0, a, b, c]) == INITIAL_WINDOW {
            let size = u32::from_be_bytes([v1, v2, v3, v4]);
            if size > 0x7fff_ffff {
                return Err(Malformed("a window that exceeds the maximum"));
            }
            initial_window = Some(size);
        }
    }
    Ok(Frame::Settings { initial_window })
}
