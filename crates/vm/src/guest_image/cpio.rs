//! Writes archives of cpio's "newc" format: Documentation/driver-api/early-userspace/buffer-format.rst.

use std::io::{self, Read, Write};

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Writes entries in the order of the calls; the same calls write the same bytes. A parent directory comes before its
/// entries. Paths have no leading `/`.
pub(super) struct Archive<W> {
    output: W,
    /// Inode number of the latest entry.
    inode: u32,
}

/// What the header of an entry contains besides its name.
#[derive(Default)]
struct Attributes {
    inode: u32,
    mode: u32,
    links: u32,
    size: u32,
    device: (u32, u32),
}

impl<W: Write> Archive<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output, inode: 0 }
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.entry(path, Attributes { mode: DIRECTORY | mode, links: 2, ..Attributes::default() })
    }

    pub(super) fn character_device(&mut self, path: &str, mode: u32, device: (u32, u32)) -> io::Result<()> {
        self.entry(path, Attributes { mode: CHARACTER_DEVICE | mode, links: 1, device, ..Attributes::default() })
    }

    /// Copies `size` bytes of `content`.
    ///
    /// # Errors
    /// `UnexpectedEof` if there are fewer.
    pub(super) fn file(&mut self, path: &str, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        let size = u32::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.entry(path, Attributes { mode: REGULAR | mode, links: 1, size, ..Attributes::default() })?;
        if io::copy(&mut content.take(u64::from(size)), &mut self.output)? != u64::from(size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(size as usize)
    }

    /// Writes the end mark.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.header("TRAILER!!!", &Attributes { links: 1, ..Attributes::default() })
    }

    fn entry(&mut self, path: &str, attributes: Attributes) -> io::Result<()> {
        self.inode += 1;
        self.header(path, &Attributes { inode: self.inode, ..attributes })
    }

    /// Owner, group and modification time are 0.
    fn header(&mut self, path: &str, attributes: &Attributes) -> io::Result<()> {
        let Attributes { inode, mode, links, size, device: (major, minor) } = attributes;
        let name_size = path.len() as u32 + 1;
        write!(self.output, "070701{inode:08X}{mode:08X}{0:08X}{0:08X}{links:08X}{0:08X}{size:08X}", 0)?;
        write!(self.output, "{0:08X}{0:08X}{major:08X}{minor:08X}{name_size:08X}{0:08X}{path}\0", 0)?;
        const HEADER: usize = 110;
        self.pad(HEADER + path.len() + 1)
    }

    /// Pads what is `length` bytes long to a multiple of 4 bytes.
    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.output.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Entry of an archive.
    #[derive(Debug, PartialEq, Eq)]
    pub(in super::super) struct Entry {
        pub(in super::super) path: String,
        pub(in super::super) inode: u32,
        pub(in super::super) mode: u32,
        pub(in super::super) device: (u32, u32),
        pub(in super::super) content: Vec<u8>,
    }

    /// Parses an archive, without its end mark.
    pub(in super::super) fn parse(mut archive: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&archive[..6], b"070701");
            let field = |index: usize| {
                let digits = &archive[6 + 8 * index..14 + 8 * index];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (size, name_end) = (field(6) as usize, 110 + field(11) as usize);
            assert_eq!((field(2), field(3), field(5), archive[name_end - 1]), (0, 0, 0, 0));
            let path = String::from_utf8(archive[110..name_end - 1].to_vec()).unwrap();
            let content_start = name_end.next_multiple_of(4);
            let content = archive[content_start..content_start + size].to_vec();
            let entry = Entry { path, inode: field(0), mode: field(1), device: (field(9), field(10)), content };
            archive = &archive[(content_start + size).next_multiple_of(4)..];
            if entry.path == "TRAILER!!!" {
                assert!(archive.is_empty());
                return entries;
            }
            entries.push(entry);
        }
    }

    #[test]
    fn an_archive_is_parsed_back() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.directory("dev", 0o755).unwrap();
        archive.character_device("dev/console", 0o600, (5, 1)).unwrap();
        archive.file("init", 0o755, 5, &b"12345678"[..]).unwrap();
        archive.finish().unwrap();
        let entry = |path: &str, inode, mode, device, content: &[u8]| Entry {
            path: path.to_owned(),
            inode,
            mode,
            device,
            content: content.to_vec(),
        };
        let expected = [
            entry("dev", 1, 0o040_755, (0, 0), b""),
            entry("dev/console", 2, 0o020_600, (5, 1), b""),
            entry("init", 3, 0o100_755, (0, 0), b"12345"),
        ];
        assert_eq!(parse(&bytes), expected);
    }

    #[test]
    fn a_file_that_is_shorter_than_its_size_is_an_error() {
        let error = Archive::new(Vec::new()).file("init", 0o755, 5, &b"1234"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(Archive::new(Vec::new()).file("init", 0o755, 1 << 32, &b""[..]).is_err());
    }
}
