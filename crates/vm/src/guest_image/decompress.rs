//! Unpacks what kernel builds compress: the payload of a bzImage, and modules.

use std::io;

use lzma_rust2::XzReader;

use super::{elf::read_u32, input::read_to_end};

/// Start of an LZ4 frame of the legacy format, the only one that the kernel's decoder knows.
const LZ4_LEGACY_MAGIC: u32 = 0x184c_2102;
/// Maximum size of a block of that format, unpacked.
const LZ4_BLOCK_MAX: usize = 8 << 20;
/// Maximum memory of a decoder of xz, in KiB. `xz -9` needs 64 MiB, `--lzma2=dict=128MiB` of old kernel builds 128
/// MiB.
const XZ_MEMORY_MAX_KIB: u32 = 256 << 10;

/// A compression that can be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Lz4Legacy,
    Xz,
    Zstd,
}

impl Compression {
    /// Finds the compression by the first bytes; `None` for one that is not supported (bzip2, lzma, lzo) and for
    /// none.
    pub(super) fn detect(data: &[u8]) -> Option<Self> {
        let magics = [
            (&b"\x1f\x8b\x08"[..], Self::Gzip),
            (&LZ4_LEGACY_MAGIC.to_le_bytes(), Self::Lz4Legacy),
            (b"\xfd7zXZ\0", Self::Xz),
            (b"\x28\xb5\x2f\xfd", Self::Zstd),
        ];
        magics.into_iter().find_map(|(magic, compression)| data.starts_with(magic).then_some(compression))
    }

    /// Unpacks the first frame or stream of `data` to at most `max` bytes.
    ///
    /// The kernel's build appends 4 bytes with the unpacked size to the payload of each format but gzip, where they
    /// are part of the format (`size_append` in `scripts/Makefile.lib`). Formats with an end mark ignore them; an LZ4
    /// frame does not have one, so that the caller must remove them.
    pub(super) fn unpack(self, data: &[u8], max: u64) -> io::Result<Vec<u8>> {
        let unpacked = match self {
            Self::Gzip => read_to_end(flate2::read::GzDecoder::new(data), max)?,
            Self::Lz4Legacy => unpack_lz4(data, max)?,
            Self::Xz => read_to_end(XzReader::new_mem_limit(data, false, XZ_MEMORY_MAX_KIB), max)?,
            Self::Zstd => read_to_end(zstd::Decoder::with_buffer(data)?.single_frame(), max)?,
        };
        unpacked.ok_or_else(|| invalid(format!("unpacked, it is larger than {max} bytes")))
    }
}

/// Unpacks frames of LZ4's legacy format: a magic number, then blocks of a 32-bit size and that many bytes.
fn unpack_lz4(mut data: &[u8], max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut unpacked = Vec::new();
    let mut block = vec![0; LZ4_BLOCK_MAX];
    while !data.is_empty() {
        let size = read_u32(data, 0).ok_or_else(|| invalid("LZ4 block without a size"))?;
        data = &data[4..];
        if size == LZ4_LEGACY_MAGIC {
            continue;
        }
        let (packed, rest) = data.split_at_checked(size as usize).ok_or_else(|| invalid("LZ4 block is incomplete"))?;
        data = rest;
        let length =
            lz4_flex::block::decompress_into(packed, &mut block).map_err(|error| invalid(error.to_string()))?;
        unpacked.extend_from_slice(&block[..length]);
        if unpacked.len() as u64 > max {
            return Ok(None);
        }
    }
    Ok(Some(unpacked))
}

fn invalid(cause: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause.into())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    /// Made by `printf %s 'a module, compressed with xz' | xz --check=crc32 --x86 --lzma2=dict=1MiB`.
    pub(in super::super) const XZ: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x01, 0x04, 0x00, 0x21, 0x01,
        0x10, 0x00, 0x8b, 0x21, 0x6f, 0x49, 0x01, 0x00, 0x1b, 0x61, 0x20, 0x6d, 0x6f, 0x64, 0x75, 0x6c, 0x65, 0x2c,
        0x20, 0x63, 0x6f, 0x6d, 0x70, 0x72, 0x65, 0x73, 0x73, 0x65, 0x64, 0x20, 0x77, 0x69, 0x74, 0x68, 0x20, 0x78,
        0x7a, 0x00, 0xc6, 0x9e, 0x1e, 0x20, 0x00, 0x01, 0x30, 0x1c, 0x97, 0xdf, 0xc1, 0xeb, 0x90, 0x42, 0x99, 0x0d,
        0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
    ];
    /// Content of [`XZ`].
    pub(in super::super) const XZ_CONTENT: &[u8] = b"a module, compressed with xz";

    pub(in super::super) fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    pub(in super::super) fn zstd(content: &[u8]) -> Vec<u8> {
        zstd::encode_all(content, 1).unwrap()
    }

    /// Stores the content as literals, in blocks of `size` bytes.
    pub(in super::super) fn lz4(content: &[u8], size: usize) -> Vec<u8> {
        let mut frame = LZ4_LEGACY_MAGIC.to_le_bytes().to_vec();
        for literals in content.chunks(size) {
            let mut block = vec![0xf0];
            let extra = literals.len().checked_sub(15).expect("blocks of 15 bytes or more");
            block.extend(std::iter::repeat_n(255, extra / 255));
            block.push((extra % 255) as u8);
            block.extend(literals);
            frame.extend((block.len() as u32).to_le_bytes());
            frame.extend(block);
        }
        frame
    }

    fn unpack(data: &[u8], max: u64) -> Result<Vec<u8>, String> {
        Compression::detect(data).expect("a known compression").unpack(data, max).map_err(|error| error.to_string())
    }

    #[test]
    fn each_format_is_unpacked_and_bounded() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        for packed in [gzip(&content), zstd(&content), lz4(&content, 100_000)] {
            assert!(unpack(&packed, content.len() as u64).unwrap() == content);
            assert_eq!(
                unpack(&packed, content.len() as u64 - 1).unwrap_err(),
                "unpacked, it is larger than 399999 bytes"
            );
            assert!(unpack(&packed[..packed.len() / 2], 1 << 20).is_err());
        }
        assert_eq!(unpack(XZ, 28).unwrap(), XZ_CONTENT);
        assert!(unpack(XZ, 27).is_err() && unpack(&XZ[..40], 28).is_err());
    }

    #[test]
    fn an_appended_size_is_ignored_where_frames_end() {
        for mut packed in [zstd(XZ_CONTENT), XZ.to_vec(), gzip(XZ_CONTENT)] {
            packed.extend(28_u32.to_le_bytes());
            assert_eq!(unpack(&packed, 28).unwrap(), XZ_CONTENT);
        }
        let mut concatenated = lz4(&XZ_CONTENT[..15], 15);
        concatenated.extend(lz4(&XZ_CONTENT[..15], 15));
        assert_eq!(unpack(&concatenated, 30).unwrap(), XZ_CONTENT[..15].repeat(2));
    }

    #[test]
    fn hostile_lz4_blocks_are_refused() {
        let magic = LZ4_LEGACY_MAGIC.to_le_bytes();
        for blocks in [&[0xff; 4][..], &[1, 0], &[3, 0, 0, 0, 0x00, 0xff, 0xff], &[0x10, 0, 0, 0]] {
            assert!(unpack(&[&magic, blocks].concat(), 1 << 20).is_err(), "{blocks:?}");
        }
        assert_eq!(Compression::detect(b"\x7fELF"), None);
    }
}
