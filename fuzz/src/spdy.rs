use streaming::spdy::{Decoder, Frame};

/// Decodes the bytes of a client. The result must be frames or an error, the same for the same input, and no frame may
/// claim more data than was sent.
pub fn spdy(data: &[u8]) {
    let frames = Decoder::default().frames(data);
    assert_eq!(Decoder::default().frames(data), frames);
    let Ok(frames) = frames else { return };
    assert!(frames.len() <= data.len() / 8);
    for frame in &frames {
        match frame {
            Frame::SynStream { stream, .. }
            | Frame::SynReply { stream }
            | Frame::RstStream { stream, .. }
            | Frame::Headers { stream, .. } => assert!(*stream != 0 && *stream >> 31 == 0),
            Frame::Data { stream, length, .. } => assert!(*stream != 0 && *length <= data.len()),
            Frame::WindowUpdate { delta, .. } => assert!(*delta != 0 && *delta >> 31 == 0),
            Frame::Settings { initial_window } => assert!(initial_window.is_none_or(|size| size >> 31 == 0)),
            Frame::Ping { .. } | Frame::GoAway | Frame::Unknown => {}
        }
    }
}
