//! The tar format: ustar, PAX, GNU long names and sparse files. Every length is limited.
//!
//! Fields are decoded by the `tar` crate. The iteration over headers is not, because a hostile extension header must
//! not decide how much memory is used.

use std::io;

use super::{
    chunks::Chunks,
    pax::{self, Pax},
    sparse,
    tar_entry::{BLOCK, Entry, Kind, Meta},
};

/// Largest PAX header or GNU long name, in bytes. The values of extended attributes have at most 64 KiB each in the
/// kernel.
const EXTENSION_MAX: u64 = 1024 * 1024;
/// Most headers before the one of the entry itself: an archive could have nothing else and never have a first entry.
const HEADERS_MAX: u32 = 64;
/// Longest path and link target, in bytes. The kernel accepts less than 4096; a longer one is refused with its name.
const NAME_MAX: usize = 8192;

fn invalid_data(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Reads the next entry's headers. `None` at the end of the archive.
pub(crate) fn next(chunks: &mut Chunks) -> io::Result<Option<Entry>> {
    let mut pax = Pax::default();
    let mut long_path = None;
    let mut long_link = None;
    for _ in 0..HEADERS_MAX {
        let Some(header) = header(chunks)? else { return Ok(None) };
        let size = header.entry_size().map_err(|_| invalid_data("a header's size is not a number"))?;
        match header.entry_type().as_byte() {
            b'x' => pax = pax::parse(&extension(chunks, size)?)?,
            // Global headers contain comments (git archive) in every image seen. Names and sizes in them would apply to
            // every entry, so they are ignored.
            b'g' => drop(extension(chunks, size)?),
            b'L' => long_path = Some(until_nul(extension(chunks, size)?)),
            b'K' => long_link = Some(until_nul(extension(chunks, size)?)),
            // The name of a volume, which has no body.
            b'V' if size > EXTENSION_MAX => return Err(invalid_data("a volume header with a body")),
            b'V' => chunks.skip(padded(size))?,
            _ => return entry(chunks, &header, pax, (long_path, long_link)).map(Some),
        }
    }
    Err(invalid_data(format!("more than {HEADERS_MAX} extension headers in a row")))
}

fn header(chunks: &mut Chunks) -> io::Result<Option<tar::Header>> {
    if chunks.fill()?.is_empty() {
        return Ok(None); // a missing end mark is accepted by every reader
    }
    let mut header = tar::Header::new_old();
    chunks.read_exact(header.as_mut_bytes())?;
    if header.as_bytes().iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let bytes = header.as_bytes();
    let sum: u32 =
        bytes.iter().enumerate().map(|(at, b)| if (148..156).contains(&at) { 32 } else { u32::from(*b) }).sum();
    if header.cksum().ok() != Some(sum) {
        return Err(invalid_data(format!("a header's checksum is wrong at byte {}", chunks.passed() - BLOCK)));
    }
    Ok(Some(header))
}

/// Returns the size of `size` bytes in the archive.
fn padded(size: u64) -> u64 {
    size.saturating_add(BLOCK - 1) / BLOCK * BLOCK
}

fn extension(chunks: &mut Chunks, size: u64) -> io::Result<Vec<u8>> {
    if size > EXTENSION_MAX {
        return Err(invalid_data(format!("an extension header of {size} bytes, at most {EXTENSION_MAX} are accepted")));
    }
    let mut bytes = vec![0; size as usize];
    chunks.read_exact(&mut bytes)?;
    chunks.skip(padded(size) - size)?;
    Ok(bytes)
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
    bytes
}

fn entry(
    chunks: &mut Chunks,
    header: &tar::Header,
    pax: Pax,
    long: (Option<Vec<u8>>, Option<Vec<u8>>),
) -> io::Result<Entry> {
    let path = pax.path.or(long.0).unwrap_or_else(|| header.path_bytes().into_owned());
    let link = pax.link.or(long.1).or_else(|| header.link_name_bytes().map(Into::into)).unwrap_or_default();
    if path.len().max(link.len()) > NAME_MAX {
        let printable = String::from_utf8_lossy(&path[..path.len().min(300)]).into_owned();
        return Err(invalid_data(format!("{printable}…: a name of more than {NAME_MAX} bytes")));
    }
    let printable = || String::from_utf8_lossy(&path).into_owned();
    let number = |field: &str| invalid_data(format!("{}: its {field} is not a number", printable()));
    let kind = kind(header.entry_type().as_byte(), &path)?;
    let id = |pax: Option<u64>, header: io::Result<u64>, field: &str| {
        let id = pax.map_or(header, Ok).map_err(|_| number(field))?;
        u32::try_from(id)
            .ok()
            .filter(|id| *id != u32::MAX)
            .ok_or_else(|| invalid_data(format!("{}: {field} {id} is too large", printable())))
    };
    let meta = Meta {
        mode: header.mode().map_err(|_| number("mode"))? & 0o7777,
        uid: id(pax.uid, header.uid(), "uid")?,
        gid: id(pax.gid, header.gid(), "gid")?,
        mtime: pax.mtime.unwrap_or_else(|| (header.mtime().ok().and_then(|t| i64::try_from(t).ok()).unwrap_or(0), 0)),
        xattrs: pax.xattrs,
    };
    let device = |field: io::Result<Option<u32>>| field.ok().flatten().unwrap_or(0);
    let mut entry = Entry {
        kind,
        meta,
        link,
        device: (device(header.device_major()), device(header.device_minor())),
        stored: 0,
        sparse: None,
        path,
    };
    if kind == Kind::File {
        entry.stored = pax
            .size
            .map_or_else(|| header.entry_size(), Ok)
            .map_err(|_| invalid_data("the size of an entry is not a number"))?;
        sparse::resolve(chunks, header, pax.sparse, &mut entry)?;
    }
    Ok(entry)
}

fn kind(flag: u8, path: &[u8]) -> io::Result<Kind> {
    Ok(match flag {
        b'0' | 0 if path.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        other => {
            let printable = String::from_utf8_lossy(path);
            return Err(invalid_data(format!("{printable}: entry type {:?} is not known", char::from(other))));
        }
    })
}

/// Returns the number of padding bytes after a body.
pub(crate) fn padding(stored: u64) -> u64 {
    (BLOCK - stored % BLOCK) % BLOCK
}
