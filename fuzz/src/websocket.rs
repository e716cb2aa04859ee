use streaming::websocket::{Codec, Demultiplexer, Event};

const CODECS: [Codec; 4] =
    [Codec::Binary { closing: true }, Codec::Binary { closing: false }, Codec::Base64, Codec::Raw];

/// Decodes the bytes of a client. The first byte selects the codec and the size of the pieces that the rest is split
/// into. The result must be events or an error, and must not depend on the split.
pub fn websocket(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let codec = CODECS[usize::from(choice & 3)];
    let whole = read(codec, data, data.len());
    let pieces = read(codec, data, usize::from(choice >> 2) + 1);
    assert_eq!(whole, pieces);
    if let Some(events) = whole {
        let bytes: usize =
            events.iter().map(|event| if let Event::Piece(_, bytes) = event { bytes.len() } else { 0 }).sum();
        assert!(bytes <= data.len());
    }
}

/// Decodes `data` in pieces of `step` bytes and joins consecutive pieces of a channel. Returns `None` if the connection
/// must be closed.
fn read(codec: Codec, data: &[u8], step: usize) -> Option<Vec<Event>> {
    let mut demultiplexer = Demultiplexer::new(codec);
    let mut events = Vec::new();
    for piece in data.chunks(step.max(1)) {
        demultiplexer.push(piece, &mut events).ok()?;
    }
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Piece(channel, bytes)), Event::Piece(next, more)) if *channel == next => {
                *bytes = [&bytes[..], &more[..]].concat().into();
            }
            (_, event) => joined.push(event),
        }
    }
    Some(joined)
}
