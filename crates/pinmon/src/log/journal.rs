//! Journal of one batch of output between a FIFO or terminal and a log, in a file that outlives this process.
//!
//! ```text
//! offset 0     header: magic, phase, stream, length, container, log device, inode and size
//!        4096  data: the peeked batch
//!  + BATCH     landing: where the batch is consumed to
//!
//! Idle ──prepare──▶ Prepared ──written──▶ Written ──idle──▶ Idle          a FIFO
//! Idle ──reading──▶ Reading ──received──▶ Received ──idle──▶ Idle         a terminal
//! ```
//!
//! The phase is stored last, so a reader that sees a phase also sees all data of it.

use std::io;

use rustix::fd::OwnedFd;
use syscall::shared_memory::SharedMemory;

use crate::stream::StreamKind;

/// Maximum size of a batch.
pub(crate) const BATCH: usize = 32 * 1024;
/// Maximum size of a read from a terminal.
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

/// Phase of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no batch.
    Idle,
    /// The log may have been written partially; nothing was consumed.
    Prepared,
    /// The log was written completely; the batch may have been consumed partially.
    Written,
    /// A terminal may have been read into the landing area.
    Reading,
    /// The terminal was read; the log may have been written partially.
    Received,
}

impl Phase {
    fn from_word(word: u32) -> Option<Self> {
        [Self::Idle, Self::Prepared, Self::Written, Self::Reading, Self::Received]
            .into_iter()
            .find(|p| *p as u32 == word)
    }
}

/// Identity of a log file, and its size before the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
}

/// Description of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) container: String,
    pub(crate) stream: StreamKind,
    /// `None`: there is no log, or it cannot be truncated (a device).
    pub(crate) log: Option<LogPosition>,
    /// Size of the batch in bytes; 0 while `Reading`.
    pub(crate) length: usize,
}

/// A mapped journal.
#[derive(Debug)]
pub(crate) struct Journal {
    memory: SharedMemory,
}

impl Journal {
    /// Maps a journal, either a new empty file or one left over by another process.
    pub(crate) fn map(file: OwnedFd) -> io::Result<Self> {
        Self::of(SharedMemory::map(file, LENGTH)?)
    }

    fn of(memory: SharedMemory) -> io::Result<Self> {
        let mut journal = Self { memory };
        match journal.word(AT_MAGIC) {
            MAGIC => {}
            0 => journal.memory.publish(AT_MAGIC, MAGIC),
            other => return Err(io::Error::other(format!("not a journal: the magic number is {other:#x}"))),
        }
        Ok(journal)
    }

    /// Returns the buffer that the next batch is peeked into. Only while `Idle`.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[HEADER..HEADER + BATCH]
    }

    /// Returns the peeked batch.
    pub(crate) fn data(&self) -> &[u8] {
        &self.memory.bytes()[HEADER..HEADER + BATCH]
    }

    /// Returns the buffer that the batch is consumed into.
    pub(crate) fn landing_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[HEADER + BATCH..]
    }

    /// Returns the consumed data.
    pub(crate) fn landing(&self) -> &[u8] {
        &self.memory.bytes()[HEADER + BATCH..]
    }

    /// Records that the first `entry.length` bytes of data are about to be written to the log.
    pub(crate) fn prepare(&mut self, entry: &Entry) {
        let (data, landing) = self.memory.bytes_mut()[HEADER..].split_at_mut(BATCH);
        for (land, byte) in landing.iter_mut().zip(data.iter()).take(entry.length) {
            *land = !byte;
        }
        self.describe(entry);
        self.memory.publish(AT_PHASE, Phase::Prepared as u32);
    }

    /// Records that the log was written.
    pub(crate) fn written(&mut self) {
        self.memory.publish(AT_PHASE, Phase::Written as u32);
    }

    /// Records that a terminal is about to be read into the landing area.
    pub(crate) fn reading(&mut self, entry: &Entry) {
        self.landing_mut()[..TERMINAL_CHUNK].fill(0);
        self.describe(entry);
        self.memory.publish(AT_PHASE, Phase::Reading as u32);
    }

    /// Records that this number of bytes was read, and where in a log they are about to be written.
    pub(crate) fn received(&mut self, length: usize, log: Option<LogPosition>) {
        // Without a position, a successor does not truncate a log, and nothing of the batch was written yet.
        self.memory.publish(AT_HAS_LOG, 0);
        self.put(AT_LENGTH, &(length as u32).to_ne_bytes());
        self.put_position(log);
        self.memory.publish(AT_PHASE, Phase::Received as u32);
    }

    /// Records that the batch is complete.
    pub(crate) fn idle(&mut self) {
        self.memory.publish(AT_PHASE, Phase::Idle as u32);
    }

    /// Returns the batch in progress, if any. The header is validated, because another process may have written it.
    pub(crate) fn pending(&self) -> io::Result<Option<(Phase, Entry)>> {
        parse(&self.memory.bytes()[..HEADER])
    }

    /// Reads the batch in progress from a journal file, without the lock of its writer. The result is valid only if the
    /// writer has exited, or was killed and does not run any longer. `None`: the journal is idle or was never used.
    pub(crate) fn inspect(file: &OwnedFd) -> io::Result<Option<Entry>> {
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

    /// Maps a journal after the process that has locked it has exited, however long that takes.
    pub(crate) fn map_when_free(file: OwnedFd) -> io::Result<Self> {
        Self::of(SharedMemory::map_when_free(file, LENGTH)?)
    }

    fn describe(&mut self, entry: &Entry) {
        let name = &entry.container.as_bytes()[..entry.container.len().min(NAME_MAX)];
        self.put(AT_STREAM, &entry.stream.word().to_ne_bytes());
        self.put(AT_LENGTH, &(entry.length as u32).to_ne_bytes());
        self.put_position(entry.log);
        self.put(AT_NAME_LENGTH, &(name.len() as u32).to_ne_bytes());
        self.put(AT_NAME, name);
    }

    fn put_position(&mut self, log: Option<LogPosition>) {
        if let Some(log) = log {
            self.put(AT_DEVICE, &log.device.to_ne_bytes());
            self.put(AT_INODE, &log.inode.to_ne_bytes());
            self.put(AT_SIZE, &log.size.to_ne_bytes());
        }
        self.memory.publish(AT_HAS_LOG, u32::from(log.is_some()));
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

/// Parses a header.
fn parse(header: &[u8]) -> io::Result<Option<(Phase, Entry)>> {
    let invalid = |problem: &str| io::Error::other(format!("journal: {problem}"));
    if word(header, AT_MAGIC) == 0 {
        return Ok(None);
    }
    let phase = Phase::from_word(word(header, AT_PHASE)).ok_or_else(|| invalid("unknown phase"))?;
    if phase == Phase::Idle {
        return Ok(None);
    }
    let (length, name) = (word(header, AT_LENGTH) as usize, word(header, AT_NAME_LENGTH) as usize);
    if length > BATCH || name > NAME_MAX {
        return Err(invalid("a length exceeds its maximum"));
    }
    let name = &header[AT_NAME..AT_NAME + name];
    let container = String::from_utf8(name.to_vec()).map_err(|_| invalid("the container id is not UTF-8"))?;
    let stream = StreamKind::from_word(word(header, AT_STREAM)).ok_or_else(|| invalid("unknown stream"))?;
    let log = (word(header, AT_HAS_LOG) != 0).then(|| LogPosition {
        device: long(header, AT_DEVICE),
        inode: long(header, AT_INODE),
        size: long(header, AT_SIZE),
    });
    Ok(Some((phase, Entry { container, stream, log, length })))
}
