use streaming::websocket::{Codec, Demultiplexer, Event};

const CODECS: [Codec; 4] =
    [Codec::Binary { closing: true }, Codec::Binary { closing: false }, Codec::Base64, Codec::Raw];

/// The first byte chooses the codec and how the rest is cut: events or an error, whole or in pieces the same.
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

/// Pieces of one channel that follow each other are one. `None`: the connection must end.
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
