//! A TCP connection over a port, which has no end of its own: each direction is a sequence of chunks, the length in bytes as
//! a little-endian `u16` and as many bytes. An empty chunk ends its direction. The agent sends a second one when it has also passed on
//! everything of the other direction: the port may be removed then.

/// Largest length of a chunk, in bytes.
pub const CHUNK_MAX: usize = u16::MAX as usize;
/// Length of what precedes the bytes of a chunk.
pub const HEADER: usize = 2;

/// Returns the header of a chunk with this length; of the longest one for a length above [`CHUNK_MAX`].
pub fn header(length: usize) -> [u8; HEADER] {
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

/// Removes the headers from what arrives. Holds an incomplete header at most.
#[derive(Debug, Default)]
pub struct Unchunker {
    header: Vec<u8>,
    /// Bytes of the current chunk that have not arrived.
    missing: usize,
    ended: bool,
    /// Bytes that arrived after the end.
    trailing: usize,
}

impl Unchunker {
    /// Appends the bytes of the chunks in `input` to `output`. What follows the end is only counted.
    pub fn push(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() && !self.ended {
            if self.missing > 0 {
                let (bytes, rest) = input.split_at(self.missing.min(input.len()));
                output.extend_from_slice(bytes);
                self.missing -= bytes.len();
                input = rest;
                continue;
            }
            let (bytes, rest) = input.split_at((HEADER - self.header.len()).min(input.len()));
            self.header.extend_from_slice(bytes);
            input = rest;
            if let Some(header) = self.header.first_chunk::<HEADER>() {
                self.missing = usize::from(u16::from_le_bytes(*header));
                self.ended = self.missing == 0;
                self.header.clear();
            }
        }
        self.trailing = self.trailing.saturating_add(input.len());
    }

    /// Whether the direction has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the second empty chunk has arrived.
    pub fn is_confirmed(&self) -> bool {
        self.trailing >= HEADER
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_arrive_however_they_are_cut(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
            size in 1_usize..100,
        ) {
            let mut sent = Vec::new();
            for part in &parts {
                sent.extend(header(part.len()));
                sent.extend(part);
            }
            sent.extend(header(0));
            sent.extend(header(0));
            let (mut unchunker, mut output) = (Unchunker::default(), Vec::new());
            for piece in sent.chunks(size) {
                prop_assert!(!unchunker.is_confirmed());
                unchunker.push(piece, &mut output);
            }
            prop_assert!(unchunker.has_ended() && unchunker.is_confirmed());
            prop_assert_eq!(output, parts.concat());
        }
    }
}
