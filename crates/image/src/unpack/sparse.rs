//! Sparse files: the old GNU header and PAX formats 0.0, 0.1 and 1.0 (GNU tar manual, "Storing Sparse Files").

use std::io;

use super::{
    chunks::Chunks,
    tar_entry::{BLOCK, Entry},
};

/// Most pieces of one sparse file.
const PIECES_MAX: usize = 65536;

/// The fields `GNU.sparse.*` of a PAX header.
#[derive(Debug, Default)]
pub(crate) struct PaxSparse {
    major: u64,
    present: bool,
    name: Option<Vec<u8>>,
    size: Option<u64>,
    pieces: Vec<(u64, u64)>,
    offset: Option<u64>,
}

fn invalid_data(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

fn number(bytes: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| invalid_data("a sparse map contains something that is not a number"))
}

impl PaxSparse {
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.present = true;
        match key {
            b"major" => self.major = number(value)?,
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" | b"size" => self.size = Some(number(value)?),
            b"offset" => self.offset = Some(number(value)?),
            b"numbytes" => self.push(number(value)?)?,
            b"map" => {
                for field in value.split(|b| *b == b',') {
                    match self.offset {
                        None => self.offset = Some(number(field)?),
                        Some(_) => self.push(number(field)?)?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, length: u64) -> io::Result<()> {
        let offset = self.offset.take().ok_or_else(|| invalid_data("a sparse map has a length without an offset"))?;
        if self.pieces.len() >= PIECES_MAX {
            return Err(invalid_data("a sparse map is too long"));
        }
        self.pieces.push((offset, length));
        Ok(())
    }
}

/// Reads the map of a sparse file, part of which may be stored in the stream, and checks it against the stored size.
pub(crate) fn resolve(chunks: &mut Chunks, header: &tar::Header, pax: PaxSparse, entry: &mut Entry) -> io::Result<()> {
    let (size, pieces) = if pax.present {
        if let Some(name) = pax.name {
            entry.path = name;
        }
        let size = pax.size.ok_or_else(|| invalid_data("a sparse file without a size"))?;
        (size, if pax.major >= 1 { stored_map(chunks, entry)? } else { pax.pieces })
    } else if header.entry_type().as_byte() == b'S' {
        old_map(chunks, header)?
    } else {
        return Ok(());
    };
    let mut end = 0;
    let mut total: u64 = 0;
    for (offset, length) in &pieces {
        let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= size);
        end = next.ok_or_else(|| invalid_data("a sparse map is out of order or beyond the file's end"))?;
        total += length;
    }
    if total != entry.stored {
        return Err(invalid_data(format!("a sparse map has {total} bytes, {} are stored", entry.stored)));
    }
    entry.sparse = Some((size, pieces));
    Ok(())
}

/// Reads a map of format 1.0: decimal lines before the data, padded to a block.
fn stored_map(chunks: &mut Chunks, entry: &mut Entry) -> io::Result<Vec<(u64, u64)>> {
    let mut block = [0; BLOCK as usize];
    let mut at = block.len();
    let mut line = || -> io::Result<u64> {
        let mut text = Vec::new();
        loop {
            if at == block.len() {
                entry.stored =
                    entry.stored.checked_sub(BLOCK).ok_or_else(|| invalid_data("a sparse map is cut off"))?;
                chunks.read_exact(&mut block)?;
                at = 0;
            }
            at += 1;
            match block[at - 1] {
                b'\n' => return number(&text),
                byte if text.len() < 20 => text.push(byte),
                _ => return Err(invalid_data("a sparse map contains something that is not a number")),
            }
        }
    };
    let count = line()?;
    if count > PIECES_MAX as u64 {
        return Err(invalid_data("a sparse map is too long"));
    }
    (0..count).map(|_| Ok((line()?, line()?))).collect()
}

fn old_map(chunks: &mut Chunks, header: &tar::Header) -> io::Result<(u64, Vec<(u64, u64)>)> {
    let gnu = header.as_gnu().ok_or_else(|| invalid_data("a sparse file without a GNU header"))?;
    let mut pieces = Vec::new();
    let mut take = |fields: &[tar::GnuSparseHeader]| -> io::Result<()> {
        for field in fields.iter().filter(|field| !field.is_empty()) {
            pieces.push((field.offset()?, field.length()?));
        }
        match pieces.len() > PIECES_MAX {
            true => Err(invalid_data("a sparse map is too long")),
            false => Ok(()),
        }
    };
    take(&gnu.sparse)?;
    let mut more = gnu.is_extended();
    while more {
        let mut next = tar::GnuExtSparseHeader::new();
        chunks.read_exact(next.as_mut_bytes())?;
        take(next.sparse())?;
        more = next.is_extended();
    }
    Ok((gnu.real_size()?, pieces))
}
