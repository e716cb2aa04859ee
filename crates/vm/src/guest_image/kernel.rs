//! Finds the format of a kernel, and unpacks a bzImage: Documentation/arch/x86/boot.rst.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    decompress::Compression,
    elf::{Elf, is_elf, read_u16, read_u32},
    error::Error,
    input,
};

/// Maximum size of a kernel, in bytes.
const KERNEL_MAX: u64 = 256 << 20;
const OPERATION: &str = "read kernel";

/// Format of the kernel of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelFormat {
    /// Uncompressed ELF file; on x86-64 with an entry point of the PVH boot protocol.
    Elf,
    /// File that a boot loader loads, as the distribution built it: a bzImage, an `Image` of arm64, or an EFI
    /// program.
    Boot,
}

/// A kernel that a VMM can load.
pub(super) struct Kernel {
    pub(super) format: KernelFormat,
    pub(super) content: Vec<u8>,
}

impl Kernel {
    /// Reads a kernel, and unpacks a bzImage if the result can be booted without its boot code.
    ///
    /// # Errors
    /// `Invalid` for a file that is not a kernel, and for an ELF file of x86-64 without PVH.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let content = input::read(path, KERNEL_MAX)?;
        if is_elf(&content) {
            return match Elf::parse(&content) {
                Some(elf) if elf.is_x86_64() && !elf.has_pvh_entry() => {
                    Err(Error::invalid(OPERATION, path, "ELF file without a PVH entry point (CONFIG_PVH)")
                        .with_remedy("use the bzImage of this kernel (vmlinuz)"))
                }
                Some(_) => Ok(Self { format: KernelFormat::Elf, content }),
                None => Err(Error::invalid(OPERATION, path, "incomplete ELF file, or not of 64 bits")),
            };
        }
        match unpack(&content) {
            Some(unpacked) => Ok(Self { format: KernelFormat::Elf, content: unpacked }),
            None if is_boot_file(&content) => Ok(Self { format: KernelFormat::Boot, content }),
            None => Err(Error::invalid(OPERATION, path, "neither an ELF file, nor a bzImage, nor an Image of arm64")),
        }
    }
}

/// Whether it is a bzImage, an `Image` of arm64 (Documentation/arch/arm64/booting.rst) or one compressed by gzip, or
/// an EFI program that unpacks itself (`drivers/firmware/efi/libstub/zboot-header.S`).
fn is_boot_file(file: &[u8]) -> bool {
    let has = |offset: usize, magic: &[u8]| file.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    let is_zboot = has(0, b"MZ\0\0zimg");
    has(0x202, b"HdrS") || has(56, b"ARM\x64") || is_zboot || Compression::detect(file) == Some(Compression::Gzip)
}

/// Returns the ELF file in a bzImage; `None` if the file is not a bzImage, if its compression is not supported, or if
/// the kernel cannot be booted by PVH.
fn unpack(file: &[u8]) -> Option<Vec<u8>> {
    let payload = payload(file)?;
    let compression = Compression::detect(payload);
    let unpacked = match compression {
        Some(Compression::Lz4Legacy) => {
            let (frame, size) = payload.split_last_chunk::<4>()?;
            let unpacked = Compression::Lz4Legacy.unpack(frame, KERNEL_MAX);
            unpacked.map(|unpacked| (unpacked.len() == u32::from_le_bytes(*size) as usize).then_some(unpacked))
        }
        Some(compression) => compression.unpack(payload, KERNEL_MAX).map(Some),
        None => Ok(None),
    };
    let unpacked = match unpacked {
        Ok(unpacked) => unpacked?,
        Err(error) => {
            tracing::warn!(%error, ?compression, "payload of bzImage cannot be unpacked; its boot code has to do it");
            return None;
        }
    };
    Elf::parse(&unpacked)?.has_pvh_entry().then_some(unpacked)
}

/// Returns the compressed kernel in a bzImage of boot protocol 2.08 or later (Linux 2.6.26).
fn payload(file: &[u8]) -> Option<&[u8]> {
    const SETUP_SECTORS: usize = 0x1f1;
    const MAGIC: usize = 0x202;
    const VERSION: usize = 0x206;
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    if !file.get(MAGIC..)?.starts_with(b"HdrS") || read_u16(file, VERSION)? < 0x0208 {
        return None;
    }
    // "For backwards compatibility, if the setup_sects field contains 0, the real value is 4."
    let setup_sectors = match file[SETUP_SECTORS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + read_u32(file, PAYLOAD_OFFSET)? as usize;
    file.get(start..start.checked_add(read_u32(file, PAYLOAD_LENGTH)? as usize)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::{
            decompress::tests::{XZ, gzip, lz4, zstd},
            elf::tests::{elf, pvh_segment},
        },
        *,
    };

    /// A bzImage of two setup sectors, with a payload at offset 16 of its protected-mode part.
    pub(in super::super) fn bz_image(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 3 * 512 + 16];
        file[0x1f1] = 2;
        file[0x202..0x206].copy_from_slice(b"HdrS");
        file[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
        file[0x248] = 16;
        file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        file.extend(payload);
        file.extend(b"signature");
        file
    }

    fn with_size(mut packed: Vec<u8>, size: usize) -> Vec<u8> {
        packed.extend((size as u32).to_le_bytes());
        packed
    }

    fn read(content: &[u8]) -> Result<Kernel, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmlinuz");
        std::fs::write(&path, content).unwrap();
        Kernel::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bz_image_is_unpacked() {
        let kernel = elf(&[pvh_segment()], &[7; 10_000]);
        let size = kernel.len();
        for payload in [gzip(&kernel), with_size(zstd(&kernel), size), with_size(lz4(&kernel, 4000), size)] {
            let read = read(&bz_image(&payload)).unwrap();
            assert_eq!(read.format, KernelFormat::Elf);
            assert!(read.content == kernel);
        }
    }

    #[test]
    fn a_bz_image_that_cannot_be_unpacked_is_kept() {
        let kernel = elf(&[pvh_segment()], &[7; 100]);
        let mut old = bz_image(&gzip(&kernel));
        old[0x206] = 7;
        let mut longer = bz_image(&gzip(&kernel));
        longer[0x24f] = 0xff;
        let files = [
            old,
            longer,
            bz_image(&gzip(&elf(&[(1, vec![0; 40])], b""))),
            bz_image(&gzip(&kernel)[..60]),
            bz_image(&with_size(lz4(&kernel, 100), kernel.len() + 1)),
            bz_image(&with_size(XZ.to_vec(), 28)),
            bz_image(b"BZh91AY"),
            bz_image(b""),
        ];
        for file in files {
            let read = read(&file).unwrap();
            assert_eq!(read.format, KernelFormat::Boot);
            assert!(read.content == file);
        }
    }

    #[test]
    fn other_formats_are_kept_and_other_files_refused() {
        let mut arm64 = vec![0; 64];
        arm64[56..60].copy_from_slice(b"ARM\x64");
        let pvh = elf(&[pvh_segment()], b"");
        assert_eq!(read(&arm64).unwrap().format, KernelFormat::Boot);
        assert_eq!(read(b"MZ\0\0zimg\0\0").unwrap().format, KernelFormat::Boot);
        assert_eq!(read(&pvh).unwrap().format, KernelFormat::Elf);
        let error = |file: &[u8]| read(file).err().unwrap();
        assert!(error(&elf(&[], b"")).contains("without a PVH entry point"));
        assert!(error(&pvh[..70]).contains("incomplete ELF file"));
        assert!(error(b"#!/bin/sh").contains("neither an ELF file"));
        assert!(error(b"").contains("neither an ELF file"));
    }
}
