//! Queries and responses of DNS on the wire (RFC 1035, section 4).

use std::net::IpAddr;

/// Length of a header, in bytes.
const HEADER: usize = 12;
/// Longest name, in bytes with lengths of labels (RFC 1035, section 2.3.4).
const NAME_MAX: usize = 255;
/// Longest label, in bytes. The two highest bits of a length mark compression and extensions.
const LABEL_MAX: usize = 63;
/// Longest response over UDP without EDNS.
const RESPONSE_MAX: usize = 512;
/// Size of responses that we announce with EDNS: no fragments on usual links.
const EDNS_SIZE: u16 = 1232;
/// Length of an OPT record without options.
const OPT_LENGTH: usize = 11;
/// How long a name may be cached, in seconds. Pods come and go.
const TTL: u32 = 5;

/// Type of an IPv4 address.
pub const A: u16 = 1;
/// Type of a pointer to a name.
pub const PTR: u16 = 12;
/// Type of an IPv6 address.
pub const AAAA: u16 = 28;
/// Type of EDNS's record.
const OPT: u16 = 41;
/// Every type, or every class.
pub const ANY: u16 = 255;
/// Class of the Internet.
pub const IN: u16 = 1;

/// Response codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Success, also without records.
    NoError = 0,
    /// The query is malformed.
    FormatError = 1,
    /// The server cannot answer now.
    ServerFailure = 2,
    /// The kind of query is not implemented.
    NotImplemented = 4,
}

/// A query with one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The name in lower case, without the final period. `None` if it has other characters than letters, digits and
    /// `- _`, so that no pod has it.
    pub name: Option<String>,
    /// Type of the requested records.
    pub kind: u16,
    /// Class of the requested records.
    pub class: u16,
    id: [u8; 2],
    flags: [u8; 2],
    question: Vec<u8>,
    has_edns: bool,
}

/// Why a message is not a query to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing can be sent back: the message has no header, or is a response itself.
    Ignored,
    /// A response with an error.
    Response(Vec<u8>),
}

impl Query {
    /// Parses a message.
    ///
    /// # Errors
    /// [`Refusal`] for what is not a query with exactly one question whose name is not compressed.
    pub fn parse(message: &[u8]) -> Result<Self, Refusal> {
        let header = message.get(..HEADER).ok_or(Refusal::Ignored)?;
        let (id, flags) = ([header[0], header[1]], [header[2], header[3]]);
        if flags[0] & 0x80 != 0 {
            return Err(Refusal::Ignored);
        }
        let refuse = |code| Refusal::Response(respond(id, flags, code, &[], false, &[]));
        if flags[0] & 0x78 != 0 {
            return Err(refuse(Code::NotImplemented));
        }
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        // A query has no answers.
        if count(4) != 1 || count(6) != 0 {
            return Err(refuse(Code::FormatError));
        }
        let (name, length) = name(&message[HEADER..]).ok_or_else(|| refuse(Code::FormatError))?;
        let after = HEADER + length;
        let fixed = message.get(after..after + 4).ok_or_else(|| refuse(Code::FormatError))?;
        let number = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        Ok(Self {
            name,
            kind: number(0),
            class: number(2),
            id,
            flags,
            question: message[HEADER..after + 4].to_vec(),
            has_edns: count(8) == 0 && count(10) > 0 && is_opt(&message[after + 4..]),
        })
    }

    /// Returns a response without records.
    #[must_use]
    pub fn empty(&self, code: Code) -> Vec<u8> {
        respond(self.id, self.flags, code, &self.question, self.has_edns, &[])
    }

    /// Returns a response with those addresses that have the requested type, as many as fit into 512 bytes.
    #[must_use]
    pub fn with_addresses(&self, addresses: &[IpAddr]) -> Vec<u8> {
        let is_requested = |ip: &&IpAddr| self.kind == ANY || self.kind == if ip.is_ipv4() { A } else { AAAA };
        let record = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => (A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
        };
        let records: Vec<_> = addresses.iter().filter(is_requested).map(record).collect();
        respond(self.id, self.flags, Code::NoError, &self.question, self.has_edns, &records)
    }

    /// Returns a response with the name of an address; an error if it is not a valid name.
    #[must_use]
    pub fn with_name(&self, name: &str) -> Vec<u8> {
        match encode(name) {
            Some(encoded) => {
                respond(self.id, self.flags, Code::NoError, &self.question, self.has_edns, &[(PTR, encoded)])
            }
            None => self.empty(Code::ServerFailure),
        }
    }

    /// Reports whether a message is a response to this query with another id.
    #[must_use]
    pub fn is_answered_by(&self, id: [u8; 2], message: &[u8]) -> bool {
        let Some(header) = message.get(..HEADER) else { return false };
        let question = message.get(HEADER..HEADER + self.question.len());
        header[..2] == id
            && header[2] & 0x80 != 0
            && header[4..6] == [0, 1]
            && question.is_some_and(|question| question.eq_ignore_ascii_case(&self.question))
    }

    /// Returns the id that the client chose.
    #[must_use]
    pub fn id(&self) -> [u8; 2] {
        self.id
    }
}

/// Reports whether a response has an error for which another server may be tried: failure or refusal.
pub(crate) fn is_failure(response: &[u8]) -> bool {
    response.get(3).is_some_and(|flags| matches!(flags & 0x0f, 2 | 5))
}

/// Parses a name; returns it as text if it is a host name, and its length in the message.
fn name(bytes: &[u8]) -> Option<(Option<String>, usize)> {
    let (mut text, mut is_plain, mut at) = (String::new(), true, 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some(((is_plain && !text.is_empty()).then_some(text), at));
        }
        // Anything longer is a pointer or reserved. A question has nothing before it that it could point to.
        if length > LABEL_MAX || at + length + 1 > NAME_MAX {
            return None;
        }
        let label = bytes.get(at..at + length)?;
        is_plain &= label.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
        at += length;
    }
}

fn encode(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=LABEL_MAX).contains(&usize::from(*length)))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    (bytes.len() <= NAME_MAX).then_some(bytes)
}

/// Reports whether the first record of a section is EDNS's: its owner is the root.
fn is_opt(additional: &[u8]) -> bool {
    additional.get(..3).is_some_and(|head| head == [0, 0, OPT.to_be_bytes()[1]])
}

fn respond(
    id: [u8; 2],
    flags: [u8; 2],
    code: Code,
    question: &[u8],
    has_edns: bool,
    records: &[(u16, Vec<u8>)],
) -> Vec<u8> {
    const RESPONSE: u8 = 0x80;
    const RECURSION_AVAILABLE: u8 = 0x80;
    /// Pointer to the name of the question.
    const OWNER: [u8; 2] = [0xc0, 12];
    let mut message = Vec::with_capacity(RESPONSE_MAX);
    message.extend(id);
    // Opcode and "recursion desired" are those of the query.
    message.extend([RESPONSE | flags[0] & 0x79, RECURSION_AVAILABLE | code as u8]);
    message.extend([0, u8::from(!question.is_empty()), 0, 0, 0, 0, 0, u8::from(has_edns)]);
    message.extend(question);
    let mut count: u16 = 0;
    for (kind, data) in records {
        let length = OWNER.len() + 10 + data.len();
        let Ok(data_length) = u16::try_from(data.len()) else { continue };
        if message.len() + length + OPT_LENGTH > RESPONSE_MAX {
            break;
        }
        message.extend(OWNER);
        message.extend(kind.to_be_bytes());
        message.extend(IN.to_be_bytes());
        message.extend(TTL.to_be_bytes());
        message.extend(data_length.to_be_bytes());
        message.extend(data);
        count += 1;
    }
    message[6..8].copy_from_slice(&count.to_be_bytes());
    if has_edns {
        message.push(0);
        message.extend(OPT.to_be_bytes());
        message.extend(EDNS_SIZE.to_be_bytes());
        message.extend([0; 6]);
    }
    message
}

#[cfg(test)]
mod tests;
