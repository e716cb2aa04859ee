use serde::{Serialize, de::DeserializeOwned};

/// Largest length of the JSON of a frame, in bytes. A specification with 1 MiB of environment fits.
pub const FRAME_MAX: usize = 4 << 20;
/// Length of what precedes the JSON.
const HEADER: usize = 4;

/// Why a frame cannot be sent or was not understood.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It is longer than this side accepts.
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// It is not the expected JSON.
    #[error("malformed frame: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Returns the frame with this content.
///
/// # Errors
/// [`FrameError::TooLong`]: it would be refused by the other side.
pub fn encode(content: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, content)?;
    let length = frame.len() - HEADER;
    match u32::try_from(length) {
        Ok(header) if length <= FRAME_MAX => frame[..HEADER].copy_from_slice(&header.to_le_bytes()),
        _ => return Err(FrameError::TooLong(length)),
    }
    Ok(frame)
}

/// Finds the frames in what arrives. Holds at most one frame, and what arrived with its end.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    length_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(FRAME_MAX)
    }
}

impl Decoder {
    /// Returns a decoder that refuses frames with longer JSON.
    pub fn with_limit(length_max: usize) -> Self {
        Self { buffer: Vec::new(), length_max: length_max.min(FRAME_MAX) }
    }

    /// Adds what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next frame; `None` if it has not arrived completely. Call it until then before more is added.
    ///
    /// # Errors
    /// The connection is unusable afterwards.
    pub fn take_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if length > self.length_max {
            return Err(FrameError::TooLong(length));
        }
        let Some(json) = self.buffer.get(HEADER..HEADER + length) else { return Ok(None) };
        let content = serde_json::from_slice(json)?;
        self.buffer.drain(..HEADER + length);
        Ok(Some(content))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Answer, Call, ProcessId, Request};

    #[test]
    fn a_frame_is_found_however_it_is_cut() {
        let wait = Request::Wait { process: ProcessId::container("web") };
        let frames = [encode(&Call { id: 1, request: wait }), encode(&Call { id: 2, request: Request::Shutdown })];
        let bytes: Vec<u8> = frames.into_iter().flat_map(|frame| frame.expect("a frame")).collect();
        for size in 1..bytes.len() {
            let (mut decoder, mut ids) = (Decoder::default(), Vec::new());
            for part in bytes.chunks(size) {
                decoder.push(part);
                while let Some(call) = decoder.take_frame::<Call>().expect("valid") {
                    ids.push(call.id);
                }
            }
            assert_eq!(ids, [1, 2], "{size}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_header() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.take_frame::<Call>(), Err(FrameError::TooLong(_))));
        assert!(matches!(encode(&"x".repeat(FRAME_MAX)), Err(FrameError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_either_side_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), text in ".*") {
            for content in [bytes, text.into_bytes()] {
                let mut decoder = Decoder::default();
                decoder.push(&u32::try_from(content.len()).unwrap_or(0).to_le_bytes());
                decoder.push(&content);
                let _ = decoder.take_frame::<Call>();
                let mut decoder = Decoder::default();
                decoder.push(&content);
                let _ = decoder.take_frame::<Answer>();
            }
        }
    }
}
