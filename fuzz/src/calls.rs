use agent_api::{Call, Decoder, FrameError, encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Decodes the bytes of the daemon as the agent does. The first byte is the size of the pieces that the rest is split into.
/// The calls must not depend on it, and a call must be the same after a further transfer.
pub fn calls(data: &[u8]) {
    let Some((step, data)) = data.split_first() else { return };
    let whole = frames::<Call>(data, data.len());
    assert_eq!(whole, frames::<Call>(data, usize::from(*step) + 1));
    for call in whole.0 {
        let decoded: Call = serde_json::from_value(call.clone()).expect("a call that was encoded is valid");
        let frame = encode(&decoded).expect("a frame");
        assert_eq!(frames::<Call>(&frame, frame.len()), (vec![call], None));
    }
}

/// Decodes `data` in pieces of `step` bytes. Returns the messages, and the length of a frame that is too long, or 0 for one
/// that is malformed.
pub(crate) fn frames<T: DeserializeOwned + Serialize>(data: &[u8], step: usize) -> (Vec<Value>, Option<usize>) {
    let (mut decoder, mut messages) = (Decoder::with_limit(64 << 10), Vec::new());
    for piece in data.chunks(step.max(1)) {
        decoder.push(piece);
        loop {
            match decoder.take_frame::<T>() {
                Ok(Some(message)) => messages.push(serde_json::to_value(&message).expect("JSON")),
                Ok(None) => break,
                Err(FrameError::TooLong(length)) => return (messages, Some(length)),
                Err(FrameError::Malformed(_)) => return (messages, Some(0)),
            }
        }
    }
    (messages, None)
}
