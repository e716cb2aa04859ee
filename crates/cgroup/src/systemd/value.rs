//! D-Bus values and their wire format (D-Bus specification, "Marshaling").

/// The value of a property of a unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Byte(u8),
    Bool(bool),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Double(f64),
    Text(String),
    /// An object path.
    Object(String),
    /// The signature of the elements (an empty list needs it, too), and the elements.
    List(String, Vec<Value>),
    Struct(Vec<Value>),
    Variant(Box<Value>),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns a value of type `as`.
    pub(super) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List("s".into(), texts.into_iter().map(Self::text).collect())
    }

    /// Returns a value of type `ay`.
    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::List("y".into(), bytes.iter().copied().map(Self::Byte).collect())
    }

    pub(super) fn signature(&self) -> String {
        match self {
            Self::Byte(_) => "y".into(),
            Self::Bool(_) => "b".into(),
            Self::I16(_) => "n".into(),
            Self::U16(_) => "q".into(),
            Self::I32(_) => "i".into(),
            Self::U32(_) => "u".into(),
            Self::I64(_) => "x".into(),
            Self::U64(_) => "t".into(),
            Self::Double(_) => "d".into(),
            Self::Text(_) => "s".into(),
            Self::Object(_) => "o".into(),
            Self::List(element, _) => format!("a{element}"),
            Self::Struct(fields) => format!("({})", fields.iter().map(Self::signature).collect::<String>()),
            Self::Variant(_) => "v".into(),
        }
    }
}

/// Returns the alignment of the first type of a signature.
fn alignment(signature: &str) -> usize {
    match signature.as_bytes().first() {
        Some(b'n' | b'q') => 2,
        Some(b'b' | b'i' | b'u' | b's' | b'o' | b'a') => 4,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        _ => 1,
    }
}

/// Encodes a message in this machine's byte order.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.align(4);
        self.bytes.extend(number.to_ne_bytes());
    }

    pub(super) fn string(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    pub(super) fn signature(&mut self, signature: &str) {
        self.bytes.push(signature.len() as u8);
        self.bytes.extend(signature.as_bytes());
        self.bytes.push(0);
    }

    /// Appends a list whose elements are appended by `write`; `element` is their signature.
    pub(super) fn list(&mut self, element: &str, write: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length_at = self.bytes.len() - 4;
        self.align(alignment(element));
        let start = self.bytes.len();
        write(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub(super) fn variant(&mut self, value: &Value) {
        self.signature(&value.signature());
        self.value(value);
    }

    pub(super) fn value(&mut self, value: &Value) {
        self.align(alignment(&value.signature()));
        match value {
            Value::Byte(byte) => self.bytes.push(*byte),
            Value::Bool(truth) => self.u32(u32::from(*truth)),
            Value::I16(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::U16(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::I32(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::U32(number) => self.u32(*number),
            Value::I64(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::U64(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::Double(number) => self.bytes.extend(number.to_ne_bytes()),
            Value::Text(text) | Value::Object(text) => self.string(text),
            Value::List(element, values) => self.list(element, |out| values.iter().for_each(|value| out.value(value))),
            Value::Struct(fields) => fields.iter().for_each(|field| self.value(field)),
            Value::Variant(value) => self.variant(value),
        }
    }
}

/// Decodes a message; every access is bounds-checked.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.align(4);
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// Reads a string or an object path.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        self.text(length)
    }

    pub(super) fn signature(&mut self) -> Option<&'a str> {
        let length = self.byte()?.into();
        self.text(length)
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        let bytes = self.take(length)?;
        (self.byte()? == 0).then(|| std::str::from_utf8(bytes).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned() {
        let mut out = Writer::default();
        out.value(&Value::Byte(7));
        out.value(&Value::List("t".into(), vec![Value::U64(1)]));
        assert_eq!(out.bytes.len(), 24 - 8, "1 byte, 3 of padding, 4 of length, then 8 that are already aligned");
        assert_eq!(out.bytes[4..8], 8u32.to_ne_bytes());
        let mut out = Writer::default();
        out.value(&Value::List("(ss)".into(), Vec::new()));
        assert_eq!(
            out.bytes, [0; 8],
            "an empty list is padded to the alignment of its elements, and the padding does not count"
        );
        let mut out = Writer::default();
        out.variant(&Value::Bool(true));
        assert_eq!(out.bytes[..4], [1, b'b', 0, 0]);
        assert_eq!(Value::Struct(vec![Value::text("a"), Value::texts(["b"])]).signature(), "(sas)");
    }

    #[test]
    fn reads_are_bounds_checked() {
        let mut out = Writer::default();
        out.string("hello");
        out.u32(5);
        let mut reader = Reader::new(&out.bytes);
        assert_eq!((reader.string(), reader.u32(), reader.u32()), (Some("hello"), Some(5), None));
        let overlong = [255u8; 8];
        assert_eq!(Reader::new(&overlong).string(), None);
        assert_eq!(Reader::new(&overlong).signature(), None);
    }
}
