//! Encodes netlink messages into one contiguous buffer.

use super::REQUEST;

/// Length of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// The flag `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// Messages that are sent to the kernel in one system call.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) buffer: Vec<u8>,
    /// Offset of each message.
    pub(super) starts: Vec<usize>,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self { buffer: Vec::with_capacity(1024), starts: Vec::with_capacity(8) }
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Reports whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Appends a message: its type, flags in addition to `NLM_F_REQUEST`, the header of the netlink family, and
    /// attributes.
    pub fn message(&mut self, kind: u16, flags: u16, family: &[u8], attributes: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.starts.push(start);
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        // The socket sets the sequence number.
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer.extend_from_slice(family);
        self.pad();
        attributes(self);
        let length = u32::try_from(self.buffer.len() - start).expect("a message is shorter than 4 GiB");
        self.buffer[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Appends an attribute.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).expect("an attribute is shorter than 64 KiB");
        self.buffer.extend_from_slice(&length.to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(value);
        self.pad();
    }

    /// Appends attributes that are encoded already.
    pub fn raw(&mut self, attributes: &[u8]) {
        self.buffer.extend_from_slice(attributes);
        self.pad();
    }

    /// Appends an attribute of one byte.
    pub fn byte(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// Appends a number in host byte order, as rtnetlink requires it.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Appends a number in network byte order, as nftables requires it.
    pub fn big_endian(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends a zero-terminated string.
    pub fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    /// Appends a nested attribute.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        self.nest_with_header(kind, &[], inside);
    }

    /// Appends a nested attribute that begins with a header, such as `VETH_INFO_PEER` with an `ifinfomsg`.
    pub fn nest_with_header(&mut self, kind: u16, header: &[u8], inside: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        self.buffer.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        self.buffer.extend_from_slice(header);
        self.pad();
        inside(self);
        let length = u16::try_from(self.buffer.len() - start).expect("a nested attribute is shorter than 64 KiB");
        self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }

    pub(super) fn flag(&mut self, message: usize, flag: u16) {
        let at = self.starts[message] + 6;
        let flags = u16::from_ne_bytes([self.buffer[at], self.buffer[at + 1]]) | flag;
        self.buffer[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
    }

    pub(super) fn number_from(&mut self, first: u32) {
        for (index, start) in (0u32..).zip(&self.starts) {
            self.buffer[start + 8..start + 12].copy_from_slice(&first.wrapping_add(index).to_ne_bytes());
        }
    }
}
