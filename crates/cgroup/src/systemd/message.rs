//! D-Bus messages (D-Bus specification, "Message Format").

use super::value::{Reader, Value, Writer};

/// The longest message that is accepted, in bytes. Most replies of systemd have a few hundred bytes, a list of units some
/// 400 for each.
pub(super) const LENGTH_MAX: usize = 8 << 20;
/// The length of the fixed part of the header, which contains the lengths of the other parts.
pub(super) const FIXED: usize = 16;

const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { b'l' } else { b'B' };
const VERSION: u8 = 1;
const METHOD_CALL: u8 = 1;

/// A method of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method<'a> {
    /// The bus name; ignored on a direct connection.
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) name: &'a str,
}

/// Encodes a method call; `signature` is that of `body`.
pub(super) fn call(serial: u32, method: &Method<'_>, signature: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes.extend([BYTE_ORDER, METHOD_CALL, 0, VERSION]);
    out.u32(body.len() as u32);
    out.u32(serial);
    out.list("(yv)", |out| {
        let mut field = |code: u8, value: Value| {
            out.align(8);
            out.bytes.push(code);
            out.variant(&value);
        };
        field(1, Value::Object(method.path.into()));
        field(2, Value::text(method.interface));
        field(3, Value::text(method.name));
        field(6, Value::text(method.destination));
        if !signature.is_empty() {
            out.align(8);
            out.bytes.push(8);
            out.signature("g");
            out.signature(signature);
        }
    });
    out.align(8);
    out.bytes.extend(body);
    out.bytes
}

/// The type of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Return,
    Error,
    Signal,
    /// A method call, or a newer type; ignored.
    Other,
}

/// A received message, with the header fields that are used.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The serial of the call to which this is the reply; 0 if it is not a reply.
    pub(super) reply_serial: u32,
    /// The name of a signal.
    pub(super) member: String,
    /// The name of an error.
    pub(super) error: String,
    pub(super) signature: String,
    pub(super) body: Vec<u8>,
}

/// Returns the length of a message from its first [`FIXED`] bytes, or `None` if it is not a message or too long.
pub(super) fn length(start: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(start);
    if (reader.byte()?, reader.byte().is_some(), reader.byte().is_some(), reader.byte()?)
        != (BYTE_ORDER, true, true, VERSION)
    {
        return None;
    }
    let body = reader.u32()? as usize;
    let _serial = reader.u32()?;
    let fields = reader.u32()? as usize;
    let header = FIXED.checked_add(fields)?.checked_next_multiple_of(8)?;
    header.checked_add(body).filter(|length| *length <= LENGTH_MAX)
}

/// Decodes a message.
pub(super) fn parse(bytes: &[u8]) -> Option<Message> {
    let mut reader = Reader::new(bytes);
    reader.byte()?;
    let kind = match reader.byte()? {
        2 => Kind::Return,
        3 => Kind::Error,
        4 => Kind::Signal,
        _ => Kind::Other,
    };
    let text = String::new;
    let mut message =
        Message { kind, reply_serial: 0, member: text(), error: text(), signature: text(), body: Vec::new() };
    let mut reader = Reader::new(bytes.get(..)?);
    for _ in 0..FIXED - 4 {
        reader.byte()?;
    }
    let end = FIXED.checked_add(reader.u32()? as usize)?;
    while reader.at() < end {
        reader.align(8);
        let code = reader.byte()?;
        match (code, reader.signature()?) {
            (5, "u") => message.reply_serial = reader.u32()?,
            (3, "s") => message.member = reader.string()?.to_owned(),
            (4, "s") => message.error = reader.string()?.to_owned(),
            (8, "g") => message.signature = reader.signature()?.to_owned(),
            (_, "s" | "o") => drop(reader.string()?),
            (_, "g") => drop(reader.signature()?),
            (_, "u") => drop(reader.u32()?),
            _ => return None,
        }
    }
    reader.align(8);
    message.body = bytes.get(reader.at()..)?.to_vec();
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_encoded() {
        let method = Method { destination: "a.b", path: "/a", interface: "a.b.C", name: "Do" };
        let mut body = Writer::default();
        body.string("x");
        let bytes = call(7, &method, "s", &body.bytes);
        assert_eq!(length(&bytes), Some(bytes.len()));
        let message = parse(&bytes).unwrap();
        assert_eq!((message.kind, message.member.as_str(), message.signature.as_str()), (Kind::Other, "Do", "s"));
        assert_eq!(message.body, body.bytes);
        for cut in 0..bytes.len() {
            // Truncated messages must not be read beyond their end; they may parse if only the body is shorter.
            let _ = (length(&bytes[..cut]), parse(&bytes[..cut]));
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        assert_eq!(length(b"GET / HTTP/1.1\r\n\r\n"), None);
        let mut long = call(1, &Method { destination: "a", path: "/", interface: "a.b", name: "c" }, "", &[]);
        long[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(length(&long), None);
    }
}
