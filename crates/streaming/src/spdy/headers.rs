//! Blocks of names and values, compressed: one zlib stream per direction, a block per frame.

use flate2::{Decompress, FlushDecompress, Status};

use super::{
    decoder::Malformed,
    dictionary::{ADLER, DICTIONARY},
};

/// Most bytes of a block once it is inflated.
const BLOCK_MAX: usize = 32 * 1024;
/// What a compressor writes when it is flushed.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// Most headers of a block.
const HEADERS_MAX: u32 = 64;

/// Names (in lower case) and values, as they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a name given in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.split('\0').next().unwrap_or(""))
    }

    fn parse(block: &[u8]) -> Result<Self, Malformed> {
        let mut rest = block;
        let count = number(&mut rest)?;
        if count > HEADERS_MAX {
            return Err(Malformed("more headers than are taken"));
        }
        let mut headers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let name = text(&mut rest)?.to_lowercase();
            let value = text(&mut rest)?;
            if name.is_empty() {
                return Err(Malformed("a header without a name"));
            }
            if headers.iter().any(|(known, _)| *known == name) {
                return Err(Malformed("a header given twice"));
            }
            headers.push((name, value));
        }
        if rest.is_empty() { Ok(Self(headers)) } else { Err(Malformed("bytes after the headers")) }
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, Malformed> {
    let (first, after) = rest.split_first_chunk::<4>().ok_or(Malformed("headers that end too early"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*first))
}

fn text(rest: &mut &[u8]) -> Result<String, Malformed> {
    let length = number(rest)? as usize;
    let (first, after) = rest.split_at_checked(length).ok_or(Malformed("headers that end too early"))?;
    *rest = after;
    Ok(String::from_utf8_lossy(first).into_owned())
}

/// Reads a peer's blocks.
#[derive(Debug)]
pub struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflater {
    /// The next block. After an error no further one can be read.
    ///
    /// # Errors
    /// When it is not compressed with SPDY's dictionary, is too large, or is no list of headers.
    pub fn block(&mut self, compressed: &[u8]) -> Result<Headers, Malformed> {
        let mut block = vec![0; BLOCK_MAX];
        let (began_in, began_out) = (self.0.total_in(), self.0.total_out());
        loop {
            let (taken, given) = ((self.0.total_in() - began_in) as usize, (self.0.total_out() - began_out) as usize);
            let outcome = self.0.decompress(&compressed[taken..], &mut block[given..], FlushDecompress::Sync);
            match outcome {
                Err(error) if error.needs_dictionary() == Some(ADLER) => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| Malformed("headers that do not inflate"))?;
                    continue;
                }
                Err(_) => return Err(Malformed("headers that do not inflate")),
                Ok(Status::StreamEnd) => return Err(Malformed("compression that ends before its connection")),
                Ok(_) => {}
            }
            let (now_in, now_out) =
                ((self.0.total_in() - began_in) as usize, (self.0.total_out() - began_out) as usize);
            if now_out == BLOCK_MAX {
                return Err(Malformed("headers larger than are taken"));
            }
            if now_in == compressed.len() {
                return Headers::parse(&block[..now_out]);
            }
            if (now_in, now_out) == (taken, given) {
                return Err(Malformed("headers that do not inflate"));
            }
        }
    }
}

/// Writes our blocks. They are stored, not compressed: that is valid, and saves its 256 KiB a connection.
#[derive(Debug, Default)]
pub struct Deflater {
    begun: bool,
}

impl Deflater {
    /// The next block; at most 64 KiB of names and values.
    pub fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = Vec::new();
        plain.extend((headers.len() as u32).to_be_bytes());
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 16);
        if !std::mem::replace(&mut self.begun, true) {
            // RFC 1950: deflate, 32 KiB, with a dictionary; the five low bits make it a multiple of 31.
            block.extend([0x78, 0xbb]);
            block.extend(ADLER.to_be_bytes());
        }
        // RFC 1951, 3.2.4: not the last block, stored, length and its complement.
        let length = plain.len() as u16;
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(plain);
        // An empty stored block: Go's inflater hands out what it has at one, and fails for good where input ends
        // without.
        block.extend(FLUSH);
        block
    }
}
