//! Decodes a client's bytes into pieces of channels: pure, with bounded memory.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{
    frame::{BINARY, CLOSE, CONTINUATION, HEAD_MAX, Head, MASKED, PING, PONG, TEXT},
    malformed::Malformed,
};

/// Maximum size of a message in base64.
const ENCODED_MAX: usize = 256 * 1024;
/// Channel of messages that close another channel (`v5.channel.k8s.io`).
const CLOSE_SIGNAL: u8 = 255;

/// The format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// A byte with the channel, then the channel's data. With `closing`, a message of 255 and a channel closes that
    /// channel.
    Binary {
        /// Whether channels can be closed.
        closing: bool,
    },
    /// A digit with the channel, then the channel's data in base64.
    Base64,
    /// Data of the only channel.
    Raw,
}

/// An event that a client's bytes encode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Data of a channel.
    Piece(u8, Bytes),
    /// The end of a channel.
    End(u8),
    /// A ping, which must be answered with the same content.
    Ping(Vec<u8>),
    /// The client closes the connection; later data is ignored. The content must be echoed.
    Close(Vec<u8>),
}

/// Decodes a client's bytes as they arrive.
#[derive(Debug)]
pub struct Demultiplexer {
    codec: Codec,
    head: [u8; HEAD_MAX],
    /// Number of bytes in `head`.
    filled: usize,
    frame: Option<Frame>,
    message: Option<Message>,
    closed: bool,
}

/// The frame that is being received.
#[derive(Debug)]
struct Frame {
    head: Head,
    done: u64,
    /// Content of a control frame.
    content: Vec<u8>,
}

/// The message that is being received.
#[derive(Debug)]
enum Message {
    Started,
    Channel(u8),
    Ending(Option<u8>),
    Encoded(Vec<u8>),
}

impl Demultiplexer {
    /// Creates a demultiplexer for the start of a connection.
    pub fn new(codec: Codec) -> Self {
        Self { codec, head: [0; HEAD_MAX], filled: 0, frame: None, message: None, closed: false }
    }

    /// Decodes further bytes and appends their events.
    ///
    /// # Errors
    /// When the connection must be closed; `events` contains the events before the error.
    pub fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Malformed> {
        while !self.closed {
            match self.frame.take() {
                Some(frame) => {
                    let remaining = frame.head.length - frame.done;
                    let (now, later) =
                        bytes.split_at(bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX)));
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
            (CONTINUATION, None) => return Err(Malformed("a continuation frame without a message")),
            (TEXT | BINARY, Some(_)) => return Err(Malformed("a new message before the end of the previous one")),
            (TEXT | BINARY, None) => self.message = Some(self.new_message()),
            _ => {}
        }
        self.frame = Some(Frame { head, done: 0, content: Vec::new() });
        Ok(())
    }

    fn new_message(&self) -> Message {
        match self.codec {
            Codec::Binary { .. } => Message::Started,
            Codec::Base64 => Message::Encoded(Vec::new()),
            Codec::Raw => Message::Channel(0),
        }
    }

    /// Handles content of a frame; stores the frame again if it is incomplete.
    fn content(&mut self, mut frame: Frame, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Malformed> {
        let at = frame.done as usize % 4;
        let plain: Vec<u8> = bytes.iter().zip(frame.head.mask.iter().cycle().skip(at)).map(|(b, m)| b ^ m).collect();
        frame.done += bytes.len() as u64;
        let complete = frame.done == frame.head.length;
        match frame.head.opcode {
            CLOSE | PING | PONG => {
                frame.content.extend(plain);
                if complete {
                    self.control(frame.head.opcode, frame.content, events);
                    return Ok(());
                }
            }
            _ => {
                self.message_bytes(plain, events)?;
                if complete {
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
                self.closed = true;
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
        if let Some(message @ Message::Started) = &mut self.message {
            let channel = bytes.split_to(1)[0];
            let ending = channel == CLOSE_SIGNAL && self.codec == Codec::Binary { closing: true };
            *message = if ending { Message::Ending(None) } else { Message::Channel(channel) };
        }
        match &mut self.message {
            Some(Message::Channel(channel)) if !bytes.is_empty() => events.push(Event::Piece(*channel, bytes)),
            Some(Message::Ending(channel)) if !bytes.is_empty() => {
                if channel.is_some() || bytes.len() > 1 {
                    return Err(Malformed("a message that closes more than one channel"));
                }
                *channel = Some(bytes[0]);
            }
            Some(Message::Encoded(text)) => {
                if text.len() + bytes.len() > ENCODED_MAX {
                    return Err(Malformed("a base64 message that is too large"));
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
            Some(Message::Ending(None)) => return Err(Malformed("a message that closes no channel")),
            Some(Message::Encoded(text)) => {
                let Some((digit, text)) = text.split_first() else { return Ok(()) };
                let bytes = STANDARD.decode(text).map_err(|_| Malformed("invalid base64"))?;
                if !bytes.is_empty() {
                    events.push(Event::Piece(digit.wrapping_sub(b'0'), bytes.into()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
