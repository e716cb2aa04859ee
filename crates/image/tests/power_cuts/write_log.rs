//! The writes to a disk, in order, and the disks that a power cut may leave.
//!
//! A disk with a volatile write cache guarantees one thing: after a flush, everything that was written before the flush
//! is on it. Of later writes a power cut leaves any, in any order. So a cut in the log leaves all writes that were
//! answered when the last flush before the cut was requested, and a random part of the others. One of them may be torn
//! between sectors.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use testbed::run;

use crate::{
    disk::{copy, text},
    workload::Chance,
};

/// Bytes that are written completely or not at all. The file systems rely on that for their blocks: if smaller units
/// were torn, no superblock of ext4 and btrfs and no directory of xfs would be readable.
const SECTOR: u64 = 4096;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Write,
    Flush,
}

/// The header of an entry in the log, before its data.
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// For a write, the offset on the disk; for a flush, how many entries of the log were answered before it was
    /// requested.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Header {
    const SIZE: usize = 24;

    pub(crate) fn bytes(&self) -> [u8; Self::SIZE] {
        let words = [u64::from(self.kind == Kind::Write), self.offset, self.length];
        words.map(u64::to_ne_bytes).concat().try_into().unwrap()
    }

    fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |index: usize| u64::from_ne_bytes(bytes[index * 8..index * 8 + 8].try_into().unwrap());
        Self { kind: if word(0) == 1 { Kind::Write } else { Kind::Flush }, offset: word(1), length: word(2) }
    }
}

struct Entry {
    header: Header,
    /// Offset of its data in the log.
    data: u64,
}

impl Entry {
    fn end(&self) -> u64 {
        self.data + self.header.length
    }

    /// Returns the sectors of the disk that it writes to.
    fn sectors(&self) -> Range<u64> {
        let Header { offset, length, .. } = self.header;
        offset / SECTOR..(offset + length).div_ceil(SECTOR)
    }
}

/// A complete log.
pub(crate) struct WriteLog {
    file: File,
    entries: Vec<Entry>,
}

/// Where the power is cut, and what is on the disk at that time.
pub(crate) struct Point {
    /// Number of entries of the log before the cut.
    pub(crate) entries: usize,
    /// Number of them that were written before the last flush, and so are on the disk.
    pub(crate) flushed: usize,
    /// Of the other entries, those that are on the disk, in the order in which they got there.
    written: Vec<usize>,
    /// Which sectors of the last of these are on the disk, if it is torn.
    torn: Option<Vec<bool>>,
}

impl WriteLog {
    pub(crate) fn read(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        let (mut entries, mut at): (Vec<Entry>, u64) = (Vec::new(), 0);
        while at < size {
            let mut header = [0; Header::SIZE];
            file.read_exact_at(&mut header, at).unwrap();
            let entry = Entry { header: Header::parse(&header), data: at + Header::SIZE as u64 };
            at = entry.end();
            entries.push(entry);
        }
        Self { file, entries }
    }

    /// Returns the number of entries in the log when it had this length.
    pub(crate) fn entries_within(&self, length: u64) -> usize {
        self.entries.partition_point(|entry| entry.end() <= length)
    }

    /// Returns, for each number of entries, how many of them are on the disk because of a flush.
    fn flushed(&self) -> Vec<usize> {
        let mut flushed = 0;
        let after = |entry: &Entry| {
            if entry.header.kind == Kind::Flush {
                flushed = flushed.max(usize::try_from(entry.header.offset).unwrap());
            }
            flushed
        };
        std::iter::once(0).chain(self.entries.iter().map(after)).collect()
    }

    /// Chooses a point between `begin` and the end: right after a reply, any, or one with many unflushed writes.
    pub(crate) fn choose(&self, begin: usize, answers: &[usize], chance: &mut Chance) -> Point {
        let flushed = self.flushed();
        let is_wide = |entries: &usize| entries - flushed[*entries] > 4;
        let any: Vec<usize> = (begin..flushed.len()).collect();
        let wide: Vec<usize> = any.iter().copied().filter(is_wide).collect();
        let places: Vec<&[usize]> = [answers, &any, &wide, &wide].into_iter().filter(|all| !all.is_empty()).collect();
        let places = places[chance.index(places.len())];
        let entries = places[chance.index(places.len())];
        let flushed = flushed[entries];
        let quarters = chance.below(5);
        let mut written: Vec<usize> =
            (flushed..entries).filter(|entry| self.is_write(*entry) && chance.below(4) < quarters).collect();
        for place in (1..written.len()).rev() {
            written.swap(place, chance.index(place + 1));
        }
        let torn = written.last().filter(|_| chance.below(2) == 0);
        let torn = torn.map(|last| self.entries[*last].sectors().map(|_| chance.below(2) == 0).collect());
        Point { entries, flushed, written, torn }
    }

    fn is_write(&self, entry: usize) -> bool {
        self.entries[entry].header.kind == Kind::Write
    }

    fn apply(&self, entry: usize, torn: Option<&[bool]>, disk: &File) {
        let Entry { header, data } = &self.entries[entry];
        let mut bytes = vec![0; usize::try_from(header.length).unwrap()];
        self.file.read_exact_at(&mut bytes, *data).unwrap();
        let Some(torn) = torn else { return disk.write_all_at(&bytes, header.offset).unwrap() };
        for (sector, _) in self.entries[entry].sectors().zip(torn).filter(|(_, written)| **written) {
            let start = (sector * SECTOR).max(header.offset);
            let end = ((sector + 1) * SECTOR).min(header.offset + header.length);
            let part = [start, end].map(|at| usize::try_from(at - header.offset).unwrap());
            disk.write_all_at(&bytes[part[0]..part[1]], start).unwrap();
        }
    }

    /// Describes a point for output.
    pub(crate) fn describe(&self, point: &Point) -> String {
        let unflushed = (point.flushed..point.entries).filter(|entry| self.is_write(*entry)).count();
        let torn = if point.torn.is_some() { ", one of them torn" } else { "" };
        let (entries, written) = (point.entries, point.written.len());
        format!("a cut after entry {entries} of the log, with {written} of {unflushed} unflushed writes{torn}")
    }
}

/// Builds the disks of points. The points must be in the order of their flushed entries.
pub(crate) struct Builder<'a> {
    log: &'a WriteLog,
    path: PathBuf,
    disk: File,
    applied: usize,
}

impl<'a> Builder<'a> {
    /// Starts with a copy of the disk before the first write.
    pub(crate) fn new(log: &'a WriteLog, base: &Path, path: PathBuf) -> Self {
        copy(base, &path);
        let disk = File::options().write(true).open(&path).unwrap();
        Self { log, path, disk, applied: 0 }
    }

    fn advance(&mut self, entries: usize) {
        assert!(entries >= self.applied, "points are not in order");
        (self.applied..entries).for_each(|entry| self.log.apply(entry, None, &self.disk));
        self.applied = entries;
    }

    /// Builds the disk that a cut at this point leaves.
    pub(crate) fn build(&mut self, point: &Point, to: &Path) {
        self.advance(point.flushed);
        copy(&self.path, to);
        let disk = File::options().write(true).open(to).unwrap();
        for (place, entry) in point.written.iter().enumerate() {
            let last = place + 1 == point.written.len();
            self.log.apply(*entry, point.torn.as_deref().filter(|_| last), &disk);
        }
    }

    /// Checks that the log has everything that was written, in this order.
    pub(crate) fn finish(mut self, plain: &Path) {
        self.advance(self.log.entries.len());
        run("cmp", &[text(&self.path), text(plain)]);
    }
}
