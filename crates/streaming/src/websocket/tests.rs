use proptest::prelude::*;

use super::*;

fn frame(opcode: u8, last: bool, content: &[u8]) -> Vec<u8> {
    let mut bytes = super::frame::head(opcode, content.len());
    bytes[0] = opcode | if last { 0x80 } else { 0 };
    bytes[1] |= 0x80;
    let mask = [9, 8, 7, 6];
    bytes.extend(mask);
    bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Decodes bytes in steps of a given size. Consecutive pieces of the same channel are joined.
fn events(codec: Codec, bytes: &[u8], step: usize) -> Result<Vec<Event>, Malformed> {
    let mut demultiplexer = Demultiplexer::new(codec);
    let mut events = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        demultiplexer.push(piece, &mut events)?;
    }
    Ok(events.into_iter().fold(Vec::new(), |mut joined, event| {
        match (joined.last_mut(), event) {
            (Some(Event::Piece(channel, bytes)), Event::Piece(next, more)) if *channel == next => {
                *bytes = [&bytes[..], &more[..]].concat().into();
            }
            (_, event) => joined.push(event),
        }
        joined
    }))
}

fn piece(channel: u8, bytes: &[u8]) -> Event {
    Event::Piece(channel, bytes.to_vec().into())
}

#[test]
fn the_key_of_rfc_6455_is_accepted() {
    assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

const V5: Codec = Codec::Binary { closing: true };

#[test]
fn messages_are_decoded_to_channels() {
    let bytes = [
        frame(2, true, b"\0input"),
        frame(2, false, b""),
        frame(0, false, b"\x04{"),
        frame(9, true, b"ping"),
        frame(0, true, b"}"),
        frame(2, true, b""),
        frame(2, true, b"\x07"),
        frame(2, false, b"\xff"),
        frame(0, true, b"\0"),
        frame(10, true, b"pong"),
        frame(8, true, b"\x03\xe8bye"),
        frame(2, true, b"\0after"),
    ]
    .concat();
    for step in [1, 2, 3, 7, 1000] {
        let expected = vec![
            piece(0, b"input"),
            piece(4, b"{"),
            Event::Ping(b"ping".to_vec()),
            piece(4, b"}"),
            Event::End(0),
            Event::Close(b"\x03\xe8bye".to_vec()),
        ];
        assert_eq!(events(V5, &bytes, step), Ok(expected), "in steps of {step}");
    }
}

#[test]
fn channels_cannot_be_closed_before_v5() {
    let bytes = frame(2, true, b"\xff\0");
    assert_eq!(events(Codec::Binary { closing: false }, &bytes, 1), Ok(vec![piece(255, b"\0")]));
    assert!(events(V5, &frame(2, true, b"\xff\0\0"), 9).is_err());
    assert!(events(V5, &frame(2, true, b"\xff"), 9).is_err());
}

#[test]
fn base64_is_buffered_up_to_a_limit() {
    let bytes =
        [frame(1, false, b"0aGV"), frame(0, true, b"sbG8="), frame(1, true, b"4"), frame(1, true, b"")].concat();
    assert_eq!(events(Codec::Base64, &bytes, 1), Ok(vec![piece(0, b"hello")]));
    assert!(events(Codec::Base64, &frame(1, true, b"0a"), 9).is_err());
    assert!(events(Codec::Base64, &frame(1, true, &vec![b'a'; 300_000]), 9999).is_err());
}

#[test]
fn long_messages_are_passed_on_as_they_arrive() {
    // A frame with a length of 2^62 bytes.
    let mut bytes = vec![0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(b"\x00abc");
    assert_eq!(events(V5, &bytes, 100), Ok(vec![piece(0, b"abc")]));
}

#[test]
fn violations_of_the_protocol_are_errors() {
    let unmasked = super::frame::encode(2, b"\0x");
    let reserved = {
        let mut bytes = frame(2, true, b"\0x");
        bytes[0] |= 0x40;
        bytes
    };
    let endless = vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for bad in [
        unmasked,
        reserved,
        endless,
        frame(3, true, b""),
        frame(9, false, b""),
        frame(9, true, &[0; 126]),
        frame(0, true, b"x"),
        [frame(2, false, b"\0x"), frame(2, true, b"\0x")].concat(),
    ] {
        assert!(events(V5, &bad, 1).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_give_events_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
        for codec in [V5, Codec::Base64, Codec::Raw] {
            let whole = events(codec, &bytes, 300);
            let pieces = events(codec, &bytes, step);
            prop_assert_eq!(whole.is_ok(), pieces.is_ok());
            if whole.is_ok() {
                prop_assert_eq!(whole, pieces);
            }
        }
    }

    #[test]
    fn arbitrary_messages_are_transferred(content in proptest::collection::vec(any::<u8>(), 1..1500), step in 1usize..900) {
        let decoded = events(Codec::Raw, &frame(2, true, &content), step);
        prop_assert_eq!(decoded, Ok(vec![piece(0, &content)]));
    }
}
