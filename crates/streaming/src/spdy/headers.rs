//! Header blocks: names and values, compressed as one zlib stream per direction, with one block per frame.

use flate2::{Decompress, FlushDecompress, Status};

use super::{
    dictionary::{ADLER, DICTIONARY},
    malformed::Malformed,
};

/// Maximum size of a block in bytes after decompression.
const BLOCK_MAX: usize = 32 * 1024;
/// Output of a zlib compressor that is flushed: an empty stored block.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// Maximum number of headers in a block.
const HEADERS_MAX: u32 = 64;

/// Headers in the order of the block; names are in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Returns the first value of a header, whose name is given in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.split('\0').next().unwrap_or(""))
    }

    fn parse(block: &[u8]) -> Result<Self, Malformed> {
        let mut rest = block;
        let count = number(&mut rest)?;
        if count > HEADERS_MAX {
            return Err(Malformed("too many headers"));
        }
        let mut headers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let name = text(&mut rest)?.to_lowercase();
            let value = text(&mut rest)?;
            if name.is_empty() {
                return Err(Malformed("a header without a name"));
            }
            if headers.iter().any(|(known, _)| *known == name) {
                return Err(Malformed("a duplicate header"));
            }
            headers.push((name, value));
        }
        if rest.is_empty() { Ok(Self(headers)) } else { Err(Malformed("bytes after the headers")) }
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, Malformed> {
    let (first, after) = rest.split_first_chunk::<4>().ok_or(Malformed("truncated headers"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*first))
}

fn text(rest: &mut &[u8]) -> Result<String, Malformed> {
    let length = number(rest)? as usize;
    let (first, after) = rest.split_at_checked(length).ok_or(Malformed("truncated headers"))?;
    *rest = after;
    Ok(String::from_utf8_lossy(first).into_owned())
}

/// Decompresses the header blocks of a peer.
#[derive(Debug)]
pub struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflater {
    /// Decompresses the next block. After an error the inflater cannot be used any longer.
    ///
    /// # Errors
    /// When the block is not compressed with SPDY's dictionary, is too large, or is not a valid list of headers.
    pub fn block(&mut self, compressed: &[u8]) -> Result<Headers, Malformed> {
        let mut block = vec![0; BLOCK_MAX];
        let (began_in, began_out) = (self.0.total_in(), self.0.total_out());
        loop {
            let (consumed, produced) =
                ((self.0.total_in() - began_in) as usize, (self.0.total_out() - began_out) as usize);
            let outcome = self.0.decompress(&compressed[consumed..], &mut block[produced..], FlushDecompress::Sync);
            match outcome {
                Err(error) if error.needs_dictionary() == Some(ADLER) => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| Malformed("headers with invalid compression"))?;
                    continue;
                }
                Err(_) => return Err(Malformed("headers with invalid compression")),
                Ok(Status::StreamEnd) => return Err(Malformed("the end of the compressed stream")),
                Ok(_) => {}
            }
            let (now_in, now_out) =
                ((self.0.total_in() - began_in) as usize, (self.0.total_out() - began_out) as usize);
            if now_out == BLOCK_MAX {
                return Err(Malformed("headers that are too large"));
            }
            if now_in == compressed.len() {
                return Headers::parse(&block[..now_out]);
            }
            if (now_in, now_out) == (consumed, produced) {
                return Err(Malformed("headers with invalid compression"));
            }
        }
    }
}

/// Encodes our header blocks. They are stored uncompressed, which is valid and saves 256 KiB of memory per connection.
#[derive(Debug, Default)]
pub struct Deflater {
    started: bool,
}

impl Deflater {
    /// Encodes the next block; names and values may have at most 64 KiB.
    pub fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = Vec::new();
        plain.extend((headers.len() as u32).to_be_bytes());
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 16);
        if !std::mem::replace(&mut self.started, true) {
            // RFC 1950: deflate, window of 32 KiB, preset dictionary; the low five bits make the value a multiple of
            // 31.
            block.extend([0x78, 0xbb]);
            block.extend(ADLER.to_be_bytes());
        }
        // RFC 1951, 3.2.4: not the final block, stored, length and its complement.
        let length = plain.len() as u16;
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(plain);
        // An empty stored block: Go's inflater only returns what it has decompressed when it reads one, and fails
        // permanently when the input ends without.
        block.extend(FLUSH);
        block
    }
}
