//! A client's bytes as pieces of channels: pure, and bounded.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::frame::{BINARY, CLOSE, CONTINUATION, HEAD_MAX, Head, MASKED, PING, PONG, TEXT};

/// Most bytes of a message in base64.
const ENCODED_MAX: usize = 256 * 1024;
/// Channel of the word that a channel ends (`v5.channel.k8s.io`).
const CLOSE_SIGNAL: u8 = 255;

/// What the client sends is no WebSocket that could be followed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client sent {0}")]
pub struct Malformed(pub(crate) &'static str);

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// A byte that names the channel, then the channel's bytes. `closing`: 255 and a channel end that channel.
    Binary {
        /// Whether there is such a word.
        closing: bool,
    },
    /// A digit that names the channel, then the channel's bytes in base64.
    Base64,
    /// Bytes of the only channel.
    Raw,
}

/// What a client's bytes mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a channel.
    Piece(u8, Bytes),
    /// A channel ends.
    End(u8),
    /// To be answered with the same.
    Ping(Vec<u8>),
    /// The client leaves; nothing after it counts. Its status, to be sent back.
    Close(Vec<u8>),
}

/// Takes bytes as they come.
#[derive(Debug)]
pub struct Demultiplexer {
    codec: Codec,
    head: [u8; HEAD_MAX],
    /// So much of `head` is there.
    filled: usize,
    frame: Option<Frame>,
    message: Option<Message>,
    over: bool,
}

/// The frame whose content comes.
#[derive(Debug)]
struct Frame {
    head: Head,
    done: u64,
    /// Of a control frame.
    content: Vec<u8>,
}

/// The message whose frames come.
#[derive(Debug)]
enum Message {
    Begun,
    Of(u8),
    Ending(Option<u8>),
    Encoded(Vec<u8>),
}

impl Demultiplexer {
    /// At the begin of a connection.
    pub fn new(codec: Codec) -> Self {
        Self { codec, head: [0; HEAD_MAX], filled: 0, frame: None, message: None, over: false }
    }

    /// What these bytes mean, after those before.
    ///
    /// # Errors
    /// Where the connection must end; `events` has what came before that.
    pub fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Malformed> {
        while !self.over {
            match self.frame.take() {
                Some(frame) => {
                    let left = frame.head.length - frame.done;
                    let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    bytes = later;
                    self.content(frame, now, events)?;
                    if self.frame.is_some() {
                        return Ok(());
                    }
                }
                None => {
                    let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                    bytes = rest;
                    self.head_byte(*first)?;
                }
            }
        }
        Ok(())
    }

    fn head_byte(&mut self, byte: u8) -> Result<(), Malformed> {
        self.head[self.filled] = byte;
        self.filled += 1;
        if self.filled == 2 && byte & MASKED == 0 {
            return Err(Malformed("a frame without a mask"));
        }
        if self.filled < 2 || self.filled < Head::size(self.head[1]) {
            return Ok(());
        }
        let head = Head::parse(&self.head[..self.filled])?;
        self.filled = 0;
        match (head.opcode, &self.message) {
            (CONTINUATION, None) => return Err(Malformed("the rest of a message that was not begun")),
            (TEXT | BINARY, Some(_)) => return Err(Malformed("a message within another")),
            (TEXT | BINARY, None) => self.message = Some(self.begun()),
            _ => {}
        }
        self.frame = Some(Frame { head, done: 0, content: Vec::new() });
        Ok(())
    }

    fn begun(&self) -> Message {
        match self.codec {
            Codec::Binary { .. } => Message::Begun,
            Codec::Base64 => Message::Encoded(Vec::new()),
            Codec::Raw => Message::Of(0),
        }
    }

    /// Content of a frame; the frame is put back while more of it is to come.
    fn content(&mut self, mut frame: Frame, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Malformed> {
        let at = frame.done as usize % 4;
        let plain: Vec<u8> = bytes.iter().zip(frame.head.mask.iter().cycle().skip(at)).map(|(b, m)| b ^ m).collect();
        frame.done += bytes.len() as u64;
        let whole = frame.done == frame.head.length;
        match frame.head.opcode {
            CLOSE | PING | PONG => {
                frame.content.extend(plain);
                if whole {
                    self.control(frame.head.opcode, frame.content, events);
                    return Ok(());
                }
            }
            _ => {
                self.message_bytes(plain, events)?;
                if whole {
                    if frame.head.last {
                        self.end_message(events)?;
                    }
                    return Ok(());
                }
            }
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn control(&mut self, opcode: u8, content: Vec<u8>, events: &mut Vec<Event>) {
        match opcode {
            PING => events.push(Event::Ping(content)),
            CLOSE => {
                self.over = true;
                events.push(Event::Close(content));
            }
            _ => {}
        }
    }

    fn message_bytes(&mut self, bytes: Vec<u8>, events: &mut Vec<Event>) -> Result<(), Malformed> {
        let mut bytes = Bytes::from(bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(message @ Message::Begun) = &mut self.message {
            let channel = bytes.split_to(1)[0];
            let ending = channel == CLOSE_SIGNAL && self.codec == Codec::Binary { closing: true };
            *message = if ending { Message::Ending(None) } else { Message::Of(channel) };
        }
        match &mut self.message {
            Some(Message::Of(channel)) if !bytes.is_empty() => events.push(Event::Piece(*channel, bytes)),
            Some(Message::Ending(channel)) if !bytes.is_empty() => {
                if channel.is_some() || bytes.len() > 1 {
                    return Err(Malformed("the end of more than one channel"));
                }
                *channel = Some(bytes[0]);
            }
            Some(Message::Encoded(text)) => {
                if text.len() + bytes.len() > ENCODED_MAX {
                    return Err(Malformed("a message in base64 larger than is taken"));
                }
                text.extend(bytes);
            }
            _ => {}
        }
        Ok(())
    }

    fn end_message(&mut self, events: &mut Vec<Event>) -> Result<(), Malformed> {
        match self.message.take() {
            Some(Message::Ending(Some(channel))) => events.push(Event::End(channel)),
            Some(Message::Ending(None)) => return Err(Malformed("the end of no channel")),
            Some(Message::Encoded(text)) => {
                let Some((digit, text)) = text.split_first() else { return Ok(()) };
                let bytes = STANDARD.decode(text).map_err(|_| Malformed("what is no base64"))?;
                if !bytes.is_empty() {
                    events.push(Event::Piece(digit.wrapping_sub(b'0'), bytes.into()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
