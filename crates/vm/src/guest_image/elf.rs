//! Reads the program headers of 64-bit little-endian ELF files: elf(5).

/// Segment type of the path of a dynamic linker.
const PT_INTERP: u32 = 3;
/// Segment type of notes.
const PT_NOTE: u32 = 4;
/// Note type of the 32-bit entry point of PVH: `XEN_ELFNOTE_PHYS32_ENTRY` in `xen/interface/elfnote.h`.
const PHYS32_ENTRY: u32 = 18;
/// `EM_X86_64`.
const X86_64: u16 = 62;

/// Whether a file is of ELF format.
pub(super) fn is_elf(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF")
}

/// A 64-bit little-endian ELF file.
pub(super) struct Elf<'a> {
    machine: u16,
    /// Type and content of each segment.
    segments: Vec<(u32, &'a [u8])>,
}

impl<'a> Elf<'a> {
    /// Parses the headers; `None` if they are incomplete, or of another class or byte order.
    pub(super) fn parse(file: &'a [u8]) -> Option<Self> {
        const CLASS_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
        if !file.starts_with(CLASS_64_LITTLE_ENDIAN) {
            return None;
        }
        let table = usize::try_from(read_u64(file, 32)?).ok()?;
        let (entry_size, entries) = (usize::from(read_u16(file, 54)?), usize::from(read_u16(file, 56)?));
        let segments = (0..entries).map(|index| {
            let header = file.get(table.checked_add(index * entry_size)?..)?;
            let offset = usize::try_from(read_u64(header, 8)?).ok()?;
            let size = usize::try_from(read_u64(header, 32)?).ok()?;
            Some((read_u32(header, 0)?, file.get(offset..offset.checked_add(size)?)?))
        });
        Some(Self { machine: read_u16(file, 18)?, segments: segments.collect::<Option<_>>()? })
    }

    pub(super) fn is_x86_64(&self) -> bool {
        self.machine == X86_64
    }

    /// Whether it needs a dynamic linker.
    pub(super) fn is_dynamic(&self) -> bool {
        self.segments.iter().any(|(kind, _)| *kind == PT_INTERP)
    }

    /// Whether it has a note with the entry point of the PVH boot protocol.
    pub(super) fn has_pvh_entry(&self) -> bool {
        let mut notes = self.segments.iter().filter(|(kind, _)| *kind == PT_NOTE);
        notes.any(|(_, content)| contains_pvh_note(content))
    }
}

fn contains_pvh_note(mut notes: &[u8]) -> bool {
    const HEADER: usize = 12;
    while let (Some(name_size), Some(content_size), Some(kind)) =
        (read_u32(notes, 0), read_u32(notes, 4), read_u32(notes, 8))
    {
        let (name_size, content_size) = (name_size as usize, content_size as usize);
        if kind == PHYS32_ENTRY && name_size == 4 && notes[HEADER..].starts_with(b"Xen\0") {
            return true;
        }
        let next = HEADER + name_size.next_multiple_of(4) + content_size.next_multiple_of(4);
        let Some(rest) = notes.get(next..) else { return false };
        notes = rest;
    }
    false
}

pub(super) fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(super) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Segment with the PVH entry point, after a note of another kind.
    pub(in super::super) fn pvh_segment() -> (u32, Vec<u8>) {
        let mut notes = Vec::new();
        for (name, kind, content) in [(&b"Linux\0\0\0"[..], 257_u32, &[0; 5][..]), (b"Xen\0", PHYS32_ENTRY, &[0; 4])] {
            let name_size = name.iter().position(|byte| *byte == 0).unwrap() + 1;
            notes.extend((name_size as u32).to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(name);
            notes.extend(content);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        (PT_NOTE, notes)
    }

    /// An x86-64 file with the given segments, followed by `tail`.
    pub(in super::super) fn elf(segments: &[(u32, Vec<u8>)], tail: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 * segments.len()];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&X86_64.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (index, (kind, content)) in segments.iter().enumerate() {
            let (header, offset) = (64 + 56 * index, file.len() as u64);
            file[header..header + 4].copy_from_slice(&kind.to_le_bytes());
            file[header + 8..header + 16].copy_from_slice(&offset.to_le_bytes());
            file[header + 32..header + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            file.extend(content);
        }
        file.extend(tail);
        file
    }

    #[test]
    fn the_pvh_note_and_the_interpreter_are_found() {
        let file = elf(&[(1, vec![0; 9]), pvh_segment()], b"");
        let kernel = Elf::parse(&file).unwrap();
        assert!(kernel.has_pvh_entry() && !kernel.is_dynamic() && kernel.is_x86_64());
        let file = elf(&[(PT_INTERP, b"/lib/ld.so\0".to_vec()), (PT_NOTE, vec![0; 11])], b"");
        let program = Elf::parse(&file).unwrap();
        assert!(!program.has_pvh_entry() && program.is_dynamic());
    }

    #[test]
    fn incomplete_headers_are_refused() {
        let file = elf(&[pvh_segment()], b"");
        for length in 0..file.len() {
            assert!(Elf::parse(&file[..length]).is_none(), "{length}");
        }
        assert!(!contains_pvh_note(&[0xff; 40]));
        assert!(Elf::parse(b"#!/bin/sh").is_none());
    }
}
