//! The wire format of protocol buffers, as far as CRIU's messages need it.

/// A message under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

impl Message {
    /// Appends an int32 or an enum; a negative value is encoded with 64 bits.
    pub(crate) fn number(&mut self, field: u32, value: i32) -> &mut Self {
        self.key(field, VARINT);
        self.varint(i64::from(value) as u64);
        self
    }

    pub(crate) fn flag(&mut self, field: u32, value: bool) -> &mut Self {
        self.number(field, value.into())
    }

    pub(crate) fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.length_delimited(field, value.as_bytes())
    }

    pub(crate) fn message(&mut self, field: u32, value: &Message) -> &mut Self {
        self.length_delimited(field, &value.bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn length_delimited(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.key(field, LENGTH);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    fn key(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// The value of a decoded field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    pub(crate) fn number(self) -> Option<i32> {
        match self {
            Self::Number(number) => Some(number as i32),
            Self::Bytes(_) => None,
        }
    }

    pub(crate) fn text(self) -> Option<String> {
        match self {
            Self::Number(_) => None,
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        }
    }
}

/// Decodes the fields of a message; returns `None` if the bytes are not a message.
pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u32, Value<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes)?;
        let value = match key & 7 {
            VARINT => Value::Number(read_varint(&mut bytes)?),
            LENGTH => {
                let length = usize::try_from(read_varint(&mut bytes)?).ok()?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            FIXED_64 => Value::Bytes(take(&mut bytes, 8)?),
            FIXED_32 => Value::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        fields.push((u32::try_from(key >> 3).ok()?, value));
    }
    Some(fields)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(value)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_are_decoded() {
        let mut inner = Message::default();
        inner.text(1, "pipe:[7]").number(2, -1);
        let mut message = Message::default();
        message.number(1, 300).flag(3, true).message(27, &inner);
        assert_eq!(message.bytes()[..5], [0x08, 0xac, 0x02, 0x18, 0x01]);
        let read = fields(message.bytes()).unwrap();
        assert_eq!(read[..2], [(1, Value::Number(300)), (3, Value::Number(1))]);
        let (27, Value::Bytes(bytes)) = read[2] else { panic!("{read:?}") };
        let read = fields(bytes).unwrap();
        assert_eq!(read[0].1.text().unwrap(), "pipe:[7]");
        assert_eq!(read[1].1.number(), Some(-1));
    }

    #[test]
    fn truncated_messages_are_refused() {
        for bytes in [&[0x08][..], &[0x08, 0x80], &[0x0a, 0x05, b'x'], &[0x0b], &[0xff; 11]] {
            assert_eq!(fields(bytes), None, "{bytes:?}");
        }
    }
}
