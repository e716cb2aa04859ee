//! The journal: one batch of output on its way from a FIFO or terminal to a log, in a file that outlives this process.
//!
//! ```text
//! offset 0     header: magic, phase, stream, length, container, log device, inode and size
//!        4096  data: the batch as peeked
//!  + BATCH     landing: where the batch is consumed to
//!
//! Idle ──prepare──▶ Prepared ──written──▶ Written ──idle──▶ Idle          a FIFO
//! Idle ──reading──▶ Reading ──received──▶ Received ──idle──▶ Idle         a terminal
//! ```
//!
//! The phase is stored last, so whoever sees it sees all that belongs to it.

use std::io;

use rustix::fd::OwnedFd;
use syscall::shared_memory::SharedMemory;

use crate::stream::StreamKind;

/// Most bytes that are on their way at once.
pub(crate) const BATCH: usize = 32 * 1024;
/// Most bytes that are read from a terminal at once.
pub(crate) const TERMINAL_CHUNK: usize = 4096;

const HEADER: usize = 4096;
const LENGTH: usize = HEADER + 2 * BATCH;
const MAGIC: u32 = 0x504e_4a31;
const AT_MAGIC: usize = 0;
const AT_PHASE: usize = 4;
const AT_STREAM: usize = 8;
const AT_LENGTH: usize = 12;
const AT_DEVICE: usize = 16;
const AT_INODE: usize = 24;
const AT_SIZE: usize = 32;
const AT_HAS_LOG: usize = 40;
const AT_NAME_LENGTH: usize = 44;
const AT_NAME: usize = 48;
const NAME_MAX: usize = 128;

/// How far the batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No batch.
    Idle,
    /// The log may have been written in part; nothing was consumed.
    Prepared,
    /// The log has it whole; it may have been consumed in part.
    Written,
    /// A terminal may have been read into the landing area.
    Reading,
    /// It was read; the log may have been written in part.
    Received,
}

impl Phase {
    fn from_word(word: u32) -> Option<Self> {
        [Self::Idle, Self::Prepared, Self::Written, Self::Reading, Self::Received]
            .into_iter()
            .find(|p| *p as u32 == word)
    }
}

/// Which file a log is, and how long it was before the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
}

/// Whose batch it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) container: String,
    pub(crate) stream: StreamKind,
    /// `None`: no log, or none that can be cut back (a device).
    pub(crate) log: Option<LogPosition>,
    /// Bytes of the batch (0 while `Reading`).
    pub(crate) length: usize,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Journal {
    memory: SharedMemory,
}

impl Journal {
    /// Maps a journal, new (empty) or left by another process.
    pub(crate) fn map(file: OwnedFd) -> io::Result<Self> {
        Self::of(SharedMemory::map(file, LENGTH)?)
    }

    fn of(memory: SharedMemory) -> io::Result<Self> {
        let mut journal = Self { memory };
        match journal.word(AT_MAGIC) {
            MAGIC => {}
            0 => journal.memory.publish(AT_MAGIC, MAGIC),
            other => return Err(io::Error::other(format!("no journal: it begins with {other:#x}"))),
        }
        Ok(journal)
    }

    /// Where the next batch is peeked to. Only while `Idle`.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[HEADER..HEADER + BATCH]
    }

    /// The batch as peeked.
    pub(crate) fn data(&self) -> &[u8] {
        &self.memory.bytes()[HEADER..HEADER + BATCH]
    }

    /// Where the batch is consumed to.
    pub(crate) fn landing_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[HEADER + BATCH..]
    }

    /// What was consumed.
    pub(crate) fn landing(&self) -> &[u8] {
        &self.memory.bytes()[HEADER + BATCH..]
    }

    /// The first `entry.length` bytes of data are about to be written to the log.
    pub(crate) fn prepare(&mut self, entry: &Entry) {
        let (data, landing) = self.memory.bytes_mut()[HEADER..].split_at_mut(BATCH);
        for (land, byte) in landing.iter_mut().zip(data.iter()).take(entry.length) {
            *land = !byte;
        }
        self.describe(entry);
        self.memory.publish(AT_PHASE, Phase::Prepared as u32);
    }

    /// The log has them.
    pub(crate) fn written(&mut self) {
        self.memory.publish(AT_PHASE, Phase::Written as u32);
    }

    /// A terminal is about to be read into the landing area.
    pub(crate) fn reading(&mut self, entry: &Entry) {
        self.landing_mut()[..TERMINAL_CHUNK].fill(0);
        self.describe(entry);
        self.memory.publish(AT_PHASE, Phase::Reading as u32);
    }

    /// So many bytes were read.
    pub(crate) fn received(&mut self, length: usize) {
        self.put(AT_LENGTH, &(length as u32).to_ne_bytes());
        self.memory.publish(AT_PHASE, Phase::Received as u32);
    }

    /// The batch is where it belongs.
    pub(crate) fn idle(&mut self) {
        self.memory.publish(AT_PHASE, Phase::Idle as u32);
    }

    /// The batch that is on its way, if any. What another process left is checked before it is believed.
    pub(crate) fn pending(&self) -> io::Result<Option<(Phase, Entry)>> {
        parse(&self.memory.bytes()[..HEADER])
    }

    /// Reads whose batch is on its way in a journal file, without the lock that its writer holds: true only of a writer
    /// that runs no longer, be it that the kernel cannot end it yet. `None`: it is idle, or was never used.
    pub(crate) fn look(file: &OwnedFd) -> io::Result<Option<Entry>> {
        let mut header = [0; HEADER];
        let mut filled = 0;
        while filled < HEADER {
            match rustix::io::pread(file, &mut header[filled..], filled as u64) {
                Ok(0) => return Ok(None),
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(parse(&header)?.map(|(_, entry)| entry))
    }

    /// Maps a journal once the process that has it has ended, however long that takes.
    pub(crate) fn map_when_free(file: OwnedFd) -> io::Result<Self> {
        Self::of(SharedMemory::map_when_free(file, LENGTH)?)
    }

    fn describe(&mut self, entry: &Entry) {
        let name = &entry.container.as_bytes()[..entry.container.len().min(NAME_MAX)];
        self.put(AT_STREAM, &entry.stream.word().to_ne_bytes());
        self.put(AT_LENGTH, &(entry.length as u32).to_ne_bytes());
        self.put(AT_HAS_LOG, &u32::from(entry.log.is_some()).to_ne_bytes());
        if let Some(log) = entry.log {
            self.put(AT_DEVICE, &log.device.to_ne_bytes());
            self.put(AT_INODE, &log.inode.to_ne_bytes());
            self.put(AT_SIZE, &log.size.to_ne_bytes());
        }
        self.put(AT_NAME_LENGTH, &(name.len() as u32).to_ne_bytes());
        self.put(AT_NAME, name);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.memory.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, at: usize) -> u32 {
        word(self.memory.bytes(), at)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The batch that a header describes.
fn parse(header: &[u8]) -> io::Result<Option<(Phase, Entry)>> {
    let invalid = |what: &str| io::Error::other(format!("journal: {what}"));
    if word(header, AT_MAGIC) == 0 {
        return Ok(None);
    }
    let phase = Phase::from_word(word(header, AT_PHASE)).ok_or_else(|| invalid("unknown phase"))?;
    if phase == Phase::Idle {
        return Ok(None);
    }
    let (length, name) = (word(header, AT_LENGTH) as usize, word(header, AT_NAME_LENGTH) as usize);
    if length > BATCH || name > NAME_MAX {
        return Err(invalid("lengths beyond its own"));
    }
    let name = &header[AT_NAME..AT_NAME + name];
    let container = String::from_utf8(name.to_vec()).map_err(|_| invalid("a container id that is no text"))?;
    let stream = StreamKind::from_word(word(header, AT_STREAM)).ok_or_else(|| invalid("unknown stream"))?;
    let log = (word(header, AT_HAS_LOG) != 0).then(|| LogPosition {
        device: long(header, AT_DEVICE),
        inode: long(header, AT_INODE),
        size: long(header, AT_SIZE),
    });
    Ok(Some((phase, Entry { container, stream, log, length })))
}
