//! PAX extended headers (POSIX.1-2001 pax, "pax Extended Header"): `length key=value\n`.

use std::io;

use super::{attributes::may_be_set, sparse::PaxSparse};

/// Most extended attributes of one file, including those that are ignored.
const XATTRS_MAX: usize = 256;
/// Most bytes of the extended attributes of one file, names and values: many times the limit of ext4, which is the
/// lowest of the file systems in use.
const XATTR_BYTES_MAX: usize = 128 * 1024;

/// The fields of a PAX header, which describe the next entry.
#[derive(Debug, Default)]
pub(crate) struct Pax {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<(i64, u32)>,
    /// Extended attributes, only those that may be set.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    xattrs_seen: usize,
    xattr_bytes: usize,
    pub(crate) sparse: PaxSparse,
}

fn invalid_data(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

pub(crate) fn parse(mut bytes: &[u8]) -> io::Result<Pax> {
    let mut pax = Pax::default();
    while !bytes.is_empty() && bytes[0] != 0 {
        let (key, value, rest) = record(bytes).ok_or_else(|| invalid_data("a PAX header is malformed"))?;
        bytes = rest;
        apply(&mut pax, key, value)?;
    }
    Ok(pax)
}

fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|b| *b == b'=')?;
    Some((&body[..equals], &body[equals + 1..], &bytes[length..]))
}

fn apply(pax: &mut Pax, key: &[u8], value: &[u8]) -> io::Result<()> {
    let printable = || String::from_utf8_lossy(key).into_owned();
    let number = || {
        let text = std::str::from_utf8(value).ok();
        text.and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| invalid_data(format!("PAX {}: not a number", printable())))
    };
    let name = || match value.contains(&0) {
        true => Err(invalid_data(format!("PAX {}: has a NUL byte", printable()))),
        false => Ok(Some(value.to_vec())),
    };
    match key {
        b"path" => pax.path = name()?,
        b"linkpath" => pax.link = name()?,
        b"size" => pax.size = Some(number()?),
        b"uid" => pax.uid = Some(number()?),
        b"gid" => pax.gid = Some(number()?),
        b"mtime" => pax.mtime = Some(time(value).ok_or_else(|| invalid_data("PAX mtime: not a time"))?),
        _ => {
            if let Some(xattr) = key.strip_prefix(b"SCHILY.xattr.") {
                pax.add_xattr(xattr, value)?;
            } else if let Some(sparse) = key.strip_prefix(b"GNU.sparse.") {
                pax.sparse.set(sparse, value)?;
            }
        }
    }
    Ok(())
}

impl Pax {
    fn add_xattr(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.xattrs_seen += 1;
        if self.xattrs_seen > XATTRS_MAX {
            return Err(invalid_data(format!("more than {XATTRS_MAX} extended attributes on one file")));
        }
        if !may_be_set(name) {
            return Ok(());
        }
        self.xattr_bytes += name.len() + value.len();
        if self.xattr_bytes > XATTR_BYTES_MAX {
            return Err(invalid_data(format!("more than {XATTR_BYTES_MAX} bytes of extended attributes on one file")));
        }
        self.xattrs.push((name.to_vec(), value.to_vec()));
        Ok(())
    }
}

/// Parses `seconds[.fraction]`, which may be negative.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = integer.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match integer.starts_with('-') && nanos > 0 {
        true => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
        false => Some((seconds, nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, time};

    #[test]
    fn times_have_signs_and_fractions() {
        assert_eq!(time(b"12"), Some((12, 0)));
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"x"), None);
    }

    #[test]
    fn a_record_with_a_wrong_length_is_refused() {
        assert_eq!(parse(b"10 path=a\n").unwrap().path.unwrap(), b"a");
        for text in [&b"99 path=a\n"[..], b"3 path=a\n", b"path=a\n", b"10 path_a\n", b"0 a=b\n", b"12 size=-99\n"] {
            assert!(parse(text).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }
}
