//! Decodes messages of plugins within bounds.
//!
//! An entry of a list takes two bytes of a message, and some hundred bytes of memory once it is decoded. So the entries
//! are counted before anything is decoded, by a walk over the encoded message that allocates nothing.

use prost::Message;

/// Most entries of all lists and maps of one message.
pub(crate) const ENTRIES_MAX: usize = 32 << 10;

/// A message of the protocol.
pub(crate) trait Bounded: Message + Default {
    /// Index of its fields in the table of all messages.
    const INDEX: usize;
}

/// A field of a message.
struct Field {
    number: u64,
    is_repeated: bool,
    kind: Kind,
}

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    /// A message, by its index. No message contains itself, so the depth of a message is bounded.
    Message(usize),
    /// A string or bytes.
    Bytes,
    /// A number, encoded as a varint. A list of them may be packed.
    Number,
}

include!(concat!(env!("OUT_DIR"), "/fields.rs"));

/// Why a message cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("more than {ENTRIES_MAX} entries of lists and maps in one message")]
    TooMany,
    #[error("{0}")]
    Malformed(String),
}

/// Decodes a message, unless its lists and maps have too many entries.
pub(crate) fn decode<M: Bounded>(bytes: &[u8]) -> Result<M, Refusal> {
    count(bytes, M::INDEX, 0)?;
    M::decode(bytes).map_err(|error| Refusal::Malformed(error.to_string()))
}

/// Returns the number of entries counted before and those of an encoded message.
fn count(mut bytes: &[u8], message: usize, mut entries: usize) -> Result<usize, Refusal> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = MESSAGES[message].iter().find(|field| field.number == tag >> 3);
        let contents = take_value(&mut bytes, tag & 7)?;
        let Some(Field { is_repeated, kind, .. }) = field else { continue };
        if *is_repeated {
            entries += match (kind, contents) {
                // Each number ends with a byte without the highest bit.
                (Kind::Number, Some(packed)) => packed.iter().filter(|byte| **byte < 0x80).count(),
                _ => 1,
            };
        }
        if entries > ENTRIES_MAX {
            return Err(Refusal::TooMany);
        }
        if let (Kind::Message(index), Some(contents)) = (kind, contents) {
            entries = count(contents, *index, entries)?;
        }
    }
    Ok(entries)
}

/// Skips a value of a wire type. Returns the contents of one with a length.
fn take_value<'a>(bytes: &mut &'a [u8], wire_type: u64) -> Result<Option<&'a [u8]>, Refusal> {
    let length = match wire_type {
        0 => return varint(bytes).map(|_| None),
        1 => 8,
        2 => usize::try_from(varint(bytes)?).unwrap_or(usize::MAX),
        5 => 4,
        other => return Err(Refusal::Malformed(format!("a field of the wire type {other}"))),
    };
    let (contents, rest) =
        bytes.split_at_checked(length).ok_or_else(|| Refusal::Malformed("a field exceeds its message".to_owned()))?;
    *bytes = rest;
    Ok((wire_type == 2).then_some(contents))
}

/// Takes a number of at most ten bytes, seven bits in each, the lowest ones first.
fn varint(bytes: &mut &[u8]) -> Result<u64, Refusal> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Refusal::Malformed("a number is not complete".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{
        Adjustment, AdjustmentLinux, ContainerUpdate, CreateResponse, Hook, Hooks, Int, Scheduler, Synchronized,
        UpdateContainers, Verdict,
    };

    fn adjustment(adjust: Adjustment) -> Vec<u8> {
        CreateResponse { adjust: Some(adjust), ..CreateResponse::default() }.encode_to_vec()
    }

    #[test]
    fn entries_are_counted_at_every_depth_and_of_every_kind() {
        let text = |count| vec![String::new(); count];
        let hooks = |args| {
            let hook =
                Hook { path: "/x".to_owned(), args: text(args), timeout: Some(Int { value: 300 }), ..Hook::default() };
            Adjustment { hooks: Some(Hooks { prestart: vec![hook], ..Hooks::default() }), ..Adjustment::default() }
        };
        let scheduler = |count| {
            let scheduler = Some(Scheduler { flags: vec![-1; count], ..Scheduler::default() });
            Adjustment {
                linux: Some(AdjustmentLinux { scheduler, ..AdjustmentLinux::default() }),
                ..Adjustment::default()
            }
        };
        let annotations = |count: usize| Adjustment {
            annotations: (0..count).map(|n| (n.to_string(), String::new())).collect(),
            ..Adjustment::default()
        };
        // The hook is an entry, too.
        for (most, adjusted) in [
            (ENTRIES_MAX - 1, &hooks as &dyn Fn(usize) -> Adjustment),
            (ENTRIES_MAX, &scheduler),
            (ENTRIES_MAX, &annotations),
        ] {
            let response = decode::<CreateResponse>(&adjustment(adjusted(most))).expect("within the bound");
            assert_eq!(response.adjust, Some(adjusted(most)));
            let refused = decode::<CreateResponse>(&adjustment(adjusted(most + 1)));
            assert_eq!(refused, Err(Refusal::TooMany));
        }
        let update = vec![ContainerUpdate::default(); ENTRIES_MAX + 1];
        let bytes = UpdateContainers { update: update.clone(), ..UpdateContainers::default() }.encode_to_vec();
        assert_eq!(decode::<UpdateContainers>(&bytes), Err(Refusal::TooMany));
        let bytes = Synchronized { update, more: false }.encode_to_vec();
        assert_eq!(decode::<Synchronized>(&bytes), Err(Refusal::TooMany));
    }

    #[test]
    fn text_is_not_counted_and_unknown_fields_are_skipped() {
        let verdict = Verdict { reject: true, reason: "\n".repeat(1 << 20) };
        let mut bytes = verdict.encode_to_vec();
        // Fields 100 of each wire type, as a later version of the protocol may have.
        bytes.extend([0xa0, 0x06, 0x01, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa2, 0x06, 1, 9, 0xa5, 0x06, 1, 2, 3, 4]);
        assert_eq!(decode::<Verdict>(&bytes), Ok(verdict));
    }

    #[test]
    fn a_malformed_message_is_refused() {
        for bytes in [&[0x08][..], &[0x12, 0x05, 0x00], &[0x0b], &[0xff; 11]] {
            assert!(matches!(decode::<Verdict>(bytes), Err(Refusal::Malformed(_))), "{bytes:x?}");
        }
    }
}
