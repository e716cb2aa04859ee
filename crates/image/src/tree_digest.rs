//! The digest of an unpacked layer: bytes, owner, mode, time, symlink target and extended attributes of every file.
//!
//! It is computed right after the files were unpacked, and again after a power cut. It detects damage, not forgery
//! (XXH3, 128 bits): only this program writes layers. The digests of all entries are added up, so that it does not
//! depend on the order in which a file system lists them.

use std::{
    ffi::CStr,
    time::{Duration, Instant},
};

use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat},
    io::Errno,
};
use syscall::directory_tree::{Leave, Step, Visitor, walk};
use xxhash_rust::xxh3::Xxh3;

use crate::{Digest, Error, digest::Hasher, error::failed_to};

/// Bytes of a file that are read at once. Blocks of zeros are left out, so that a hole equals the zeros it stands for.
const BLOCK: usize = 128 * 1024;
/// Largest extended attribute, in bytes: the kernel's limit (`XATTR_SIZE_MAX`).
const ATTRIBUTE_MAX: usize = 64 * 1024;

/// How fast files are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Without pauses.
    Full,
    /// A quarter of the time, so that containers can use the disk.
    Background,
}

/// Pauses reads to keep a [`Pace`].
struct Pacer {
    pace: Pace,
    bytes: usize,
    start: Instant,
}

impl Pacer {
    /// Bytes between two pauses.
    const SLICE: usize = 4 << 20;
    /// Bytes that a file counts in addition to its contents.
    const FILE: usize = 16 << 10;

    fn new(pace: Pace) -> Self {
        Self { pace, bytes: 0, start: Instant::now() }
    }

    fn read(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes < Self::SLICE || matches!(self.pace, Pace::Full) {
            return;
        }
        std::thread::sleep((self.start.elapsed() * 3).min(Duration::from_secs(1)));
        (self.bytes, self.start) = (0, Instant::now());
    }
}

/// Computes the digest of the tree at `directory`, as 32 hex digits.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn tree_digest(directory: BorrowedFd<'_>, pace: Pace) -> rustix::io::Result<String> {
    let mut sum = Sum { total: 0, paths: Vec::new(), buffer: vec![0; BLOCK], pacer: Pacer::new(pace) };
    let root = rustix::fs::openat(directory, c".", OPEN, Mode::empty())?;
    let stat = rustix::fs::fstat(&root)?;
    // The time of the root is not part of the layer, because the directory is renamed.
    let mut entry = Xxh3::new();
    [stat.st_mode, stat.st_uid, stat.st_gid].iter().for_each(|field| entry.update(&field.to_le_bytes()));
    attributes(&Of::named(directory, c"."), &mut entry)?;
    sum.total = sum.total.wrapping_add(entry.digest128());
    walk(directory, &mut sum)?;
    Ok(format!("{:032x}", sum.total))
}

/// Computes the sha256 digest of the file `path`.
pub(crate) fn file_digest(path: &std::path::Path, pace: Pace) -> Result<Digest, Error> {
    use std::io::Read;
    let mut file = std::fs::File::open(path).map_err(failed_to("open", path))?;
    let (mut hasher, mut buffer, mut pacer) = (Hasher::new(), vec![0; BLOCK], Pacer::new(pace));
    loop {
        match file.read(&mut buffer).map_err(failed_to("read", path))? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
        }
        pacer.read(BLOCK);
    }
}

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens a file without a new access time, which would be written to the disk, where the owner of this process allows it.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat(parent, name, OPEN | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(parent, name, OPEN, Mode::empty()),
        opened => opened,
    }
}

struct Sum {
    total: u128,
    /// Digests of the paths of the current directory and those above it.
    paths: Vec<u128>,
    buffer: Vec<u8>,
    pacer: Pacer,
}

impl Sum {
    fn path(&self, name: &CStr) -> u128 {
        let mut path = Xxh3::new();
        path.update(&self.paths.last().copied().unwrap_or(0).to_le_bytes());
        path.update(name.to_bytes());
        path.digest128()
    }

    fn add(&mut self, parent: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> rustix::io::Result<()> {
        let mut entry = Xxh3::new();
        entry.update(&self.path(name).to_le_bytes());
        [stat.st_mode, stat.st_uid, stat.st_gid].iter().for_each(|field| entry.update(&field.to_le_bytes()));
        entry.update(&stat.st_mtime.to_le_bytes());
        entry.update(&stat.st_mtime_nsec.to_le_bytes());
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                entry.update(&stat.st_size.to_le_bytes());
                let file = open(parent, name)?;
                self.content(&file, stat, &mut entry)?;
                attributes(&Of::File(&file), &mut entry)?;
            }
            FileType::Symlink => {
                entry.update(rustix::fs::readlinkat(parent, name, Vec::new())?.as_bytes());
            }
            FileType::CharacterDevice | FileType::BlockDevice => entry.update(&stat.st_rdev.to_le_bytes()),
            _ => {}
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            attributes(&Of::named(parent, name), &mut entry)?;
        }
        self.total = self.total.wrapping_add(entry.digest128());
        self.pacer.read(Pacer::FILE);
        Ok(())
    }

    fn content(&mut self, file: &OwnedFd, stat: &Stat, entry: &mut Xxh3) -> rustix::io::Result<()> {
        // Most files are small, have no hole, and end after one read.
        let size = stat.st_size.unsigned_abs();
        let may_have_holes = stat.st_blocks.unsigned_abs().saturating_mul(512) < size;
        let mut offset = 0;
        while offset < size {
            if may_have_holes {
                match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                    Ok(data) => offset = data - data % BLOCK as u64,
                    Err(Errno::NXIO) => return Ok(()),
                    Err(Errno::INVAL) => {}
                    Err(cause) => return Err(cause),
                }
            }
            let mut filled = 0;
            while filled < BLOCK && offset + (filled as u64) < size {
                match rustix::io::pread(file, &mut self.buffer[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(Errno::INTR) => {}
                    Err(cause) => return Err(cause),
                }
            }
            let block = &self.buffer[..filled];
            if block.iter().any(|byte| *byte != 0) {
                entry.update(&offset.to_le_bytes());
                entry.update(block);
            }
            self.pacer.read(filled);
            if filled < BLOCK {
                return Ok(());
            }
            offset += BLOCK as u64;
        }
        Ok(())
    }
}

/// A file whose extended attributes are read.
enum Of<'a> {
    File(&'a OwnedFd),
    /// What cannot be opened: links and devices.
    Path(Vec<u8>),
}

impl Of<'_> {
    fn named(parent: BorrowedFd<'_>, name: &CStr) -> Self {
        let mut path = format!("/proc/thread-self/fd/{}/", parent.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        Self::Path(path)
    }

    fn list(&self, list: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::File(file) => rustix::fs::flistxattr(file, list),
            Self::Path(path) => rustix::fs::llistxattr(path.as_slice(), list),
        }
    }

    fn get(&self, name: &[u8], value: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::File(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Path(path) => rustix::fs::lgetxattr(path.as_slice(), name, value),
        }
    }
}

/// Adds the extended attributes, except those that a security module of the node sets.
fn attributes(of: &Of<'_>, entry: &mut Xxh3) -> rustix::io::Result<()> {
    let mut list = vec![0_u8; 1024];
    let length = loop {
        match of.list(&mut list[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if list.len() < ATTRIBUTE_MAX => list.resize(ATTRIBUTE_MAX, 0),
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(cause) => return Err(cause),
        }
    };
    if length == 0 {
        return Ok(());
    }
    let mut names: Vec<&[u8]> = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut value = vec![0_u8; ATTRIBUTE_MAX];
    for name in names.into_iter().filter(|name| !is_set_by_node(name)) {
        let length = of.get(name, &mut value[..])?;
        entry.update(name);
        entry.update(&(length as u64).to_le_bytes());
        entry.update(&value[..length]);
    }
    Ok(())
}

fn is_set_by_node(attribute: &[u8]) -> bool {
    attribute.starts_with(b"security.") && attribute != b"security.capability"
}

impl Visitor for Sum {
    fn file(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.add(parent, name, &stat)
    }

    fn enter(&mut self, parent: BorrowedFd<'_>, name: &CStr, deep: bool) -> rustix::io::Result<Step> {
        if deep {
            return Err(Errno::LOOP);
        }
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.add(parent, name, &stat)?;
        self.paths.push(self.path(name));
        Ok(Step::Descend)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr) -> rustix::io::Result<Leave> {
        self.paths.pop();
        Ok(Leave::Done)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsFd, unix::fs::FileExt},
    };

    use super::*;

    fn digest(path: &std::path::Path) -> String {
        let directory = fs::File::open(path).expect("opened");
        tree_digest(directory.as_fd(), Pace::Full).expect("read")
    }

    #[test]
    fn bytes_and_names_change_the_digest_and_holes_do_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&a, &b] {
            fs::create_dir_all(path.join("d")).expect("made");
            let file = fs::File::create(path.join("d/f")).expect("made");
            if path == &a {
                file.set_len(1 << 20).expect("sparse");
                file.write_all_at(b"x", 700_000).expect("written");
            } else {
                let mut bytes = vec![0; 1 << 20];
                bytes[700_000] = b'x';
                file.write_all_at(&bytes, 0).expect("written");
            }
            let time = std::time::UNIX_EPOCH + Duration::from_secs(1);
            file.set_modified(time).expect("set");
            fs::File::open(path.join("d")).expect("opened").set_modified(time).expect("set");
        }
        let first = digest(&a);
        assert_eq!(first, digest(&b));
        let file = fs::File::options().write(true).open(a.join("d/f")).expect("opened");
        file.write_all_at(b"y", 700_000).expect("written");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).expect("set");
        assert_ne!(digest(&a), first);
        fs::rename(b.join("d/f"), b.join("d/g")).expect("renamed");
        fs::File::open(b.join("d"))
            .expect("opened")
            .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1))
            .expect("set");
        assert_ne!(digest(&b), first);
    }
}
