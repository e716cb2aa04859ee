//! A stream of a process: bytes from a port to it, or from it to a port.

use agent_api::ProcessId;
use rustix::{
    event::{PollFd, PollFlags},
    fd::OwnedFd,
    io::Errno,
};
use syscall::terminal_output::read_terminal;

/// Size of the buffer of a stream.
const BUFFER: usize = 64 << 10;
/// Number of bytes that the kernel keeps of a pipe or terminal: the default capacity of a pipe, which is more.
const SOURCE_MAX: u64 = 64 << 10;
/// Most buffers that are moved for one event.
const ROUNDS_MAX: usize = 16;

/// Which way the bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a port to the process.
    Input,
    /// From the process to a port.
    Output,
}

/// A stream of a process.
pub(crate) struct Pump {
    pub(crate) owner: ProcessId,
    pub(crate) direction: Direction,
    from: OwnedFd,
    to: OwnedFd,
    /// What was read and not written yet.
    buffer: Vec<u8>,
    /// Whether `from` has ended.
    ended: bool,
    /// Whether nothing can be written anymore.
    broken: bool,
    /// Number of bytes read so far.
    read: u64,
    /// The number of bytes read once everything was read that was there when its process exited.
    last: Option<u64>,
}

impl Pump {
    pub(crate) fn new(owner: ProcessId, direction: Direction, from: OwnedFd, to: OwnedFd) -> Self {
        Self { owner, direction, from, to, buffer: Vec::new(), ended: false, broken: false, read: 0, last: None }
    }

    /// Returns what is waited for: room in the target for what was read, else more to read.
    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        match self.buffer.is_empty() {
            true => PollFd::new(&self.from, PollFlags::IN),
            false => PollFd::new(&self.to, PollFlags::OUT),
        }
    }

    /// Whether everything was written that will ever be read.
    pub(crate) fn is_done(&self) -> bool {
        self.broken || (self.ended && self.buffer.is_empty())
    }

    /// Records that the process has exited: what follows is written by processes that outlive it.
    pub(crate) fn process_exited(&mut self) {
        self.last = Some(self.read + SOURCE_MAX);
    }

    /// Whether everything was written that the process has written before its exit. Moves bytes.
    pub(crate) fn finish(&mut self) -> bool {
        let written = |pump: &Self| pump.read - u64::try_from(pump.buffer.len()).unwrap_or(0);
        self.run(false) || self.last.is_some_and(|last| written(self) >= last)
    }

    /// Moves bytes until one side is not ready. Returns whether nothing is left to write now.
    ///
    /// `hung_up`: the other end of what was waited for is closed.
    pub(crate) fn run(&mut self, hung_up: bool) -> bool {
        // A port whose other end is closed has no room forever.
        if hung_up && !self.buffer.is_empty() {
            self.broken = true;
        }
        for _ in 0..ROUNDS_MAX {
            if self.is_done() {
                return true;
            }
            if self.buffer.is_empty() && !self.read() {
                return true;
            }
            if !self.write() {
                return false;
            }
        }
        // Another event comes first: a process that writes without end must not delay the others.
        self.is_done()
    }

    /// Returns false if nothing can be read now.
    fn read(&mut self) -> bool {
        let mut buffer = vec![0; BUFFER];
        // A terminal reports its end as an error, and a port or pipe is read like one.
        match read_terminal(&self.from, &mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                buffer.truncate(n);
                self.buffer = buffer;
                self.read += u64::try_from(n).unwrap_or(0);
            }
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
        true
    }

    /// Returns false if not everything can be written now.
    fn write(&mut self) -> bool {
        while !self.buffer.is_empty() {
            match rustix::io::write(&self.to, &self.buffer) {
                // A port without room in its queue forever takes nothing.
                Ok(0) => {
                    self.broken = true;
                    return true;
                }
                Ok(n) => drop(self.buffer.drain(..n)),
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                // The process has closed its input.
                Err(_) => {
                    self.broken = true;
                    return true;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn bytes_are_moved_until_the_source_ends() {
        let (from, feed) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let (sink, to) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let mut pump = Pump::new(ProcessId::container("a"), Direction::Output, from, to);
        assert!(pump.run(false) && !pump.is_done(), "nothing to do yet");
        let bytes = vec![7; 60_000];
        rustix::io::write(&feed, &bytes).expect("write");
        assert!(pump.run(false));
        rustix::io::write(&feed, &bytes).expect("write");
        assert!(!pump.run(false), "the target is full");
        let mut buffer = vec![0; 1 << 20];
        let mut got = rustix::io::read(&sink, &mut buffer).expect("read");
        drop(feed);
        assert!(pump.run(false) && pump.is_done());
        got += rustix::io::read(&sink, &mut buffer).expect("read");
        assert_eq!(got, 120_000);
    }

    #[test]
    fn a_process_that_writes_without_end_does_not_delay_an_exit() {
        let (from, feed) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let (sink, to) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let mut pump = Pump::new(ProcessId::container("a"), Direction::Output, from, to);
        let (mut written, mut received, mut buffer) = (0, 0, vec![0; 1 << 20]);
        let mut fill = || {
            while let Ok(n) = rustix::io::write(&feed, &[7; 4096]) {
                written += n;
            }
            written
        };
        let before = fill();
        pump.process_exited();
        let mut rounds = 0;
        // The target is smaller than what comes, so that nothing is ever left unwritten.
        while !pump.finish() {
            fill();
            received += rustix::io::read(&sink, &mut buffer).expect("read");
            rounds += 1;
            assert!(rounds < 10, "it never ends");
        }
        received += rustix::io::read(&sink, &mut buffer).unwrap_or(0);
        assert!(received >= before, "{received} of {before}");
    }

    #[test]
    fn a_target_that_is_gone_ends_the_stream() {
        let (from, feed) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let (sink, to) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let mut pump = Pump::new(ProcessId::container("a"), Direction::Input, from, to);
        drop(sink);
        rustix::io::write(&feed, b"x").expect("write");
        assert!(pump.run(false) && pump.is_done());
    }
}
