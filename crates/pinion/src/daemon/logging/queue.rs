//! A queue for log lines in front of standard error, whose reader may stop: journald, a full pipe, a file on a hung
//! disk.
//!
//! ```text
//! event ─▶ push: never blocks ─▶ queue of 1 MiB ─▶ thread `pinion-log` ─▶ one write(2) per line
//!             └─ full: counted ───────────────────────▶ one line that reports how many were dropped
//! ```

use std::{
    collections::VecDeque,
    io::{self, Write},
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};
use telemetry::Counter;

/// Capacity of the queue in bytes, including [`OVERHEAD`] for each line.
const WAITING_MAX: usize = 1 << 20;
/// Memory that a line needs in addition to its text, in bytes.
const OVERHEAD: usize = 64;

/// Formats the line that reports how many lines were dropped.
type Notice = Box<dyn Fn(u64) -> String + Send>;

/// The queue and its thread. Clones share them.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when a line is added and when the queue is empty.
    changed: Condvar,
    dropped: Counter,
}

enum Entry {
    Line(String),
    Dropped(u64),
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Number of lines that were dropped and are not reported yet. While it is not zero, lines are dropped until half
    /// of the queue is free, so that a slow reader does not get a report with every line.
    dropped: u64,
    /// Whether a line is being written.
    writing: bool,
}

impl Queue {
    /// Starts the thread that writes to `stream`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn start(stream: impl Write + AsFd + Send + 'static, notice: Notice) -> io::Result<Self> {
        let queue =
            Self(Arc::new(Shared { waiting: Mutex::default(), changed: Condvar::new(), dropped: Counter::new() }));
        let shared = Arc::clone(&queue.0);
        let thread = thread::Builder::new().name("pinion-log".to_owned()).stack_size(64 << 10);
        thread.spawn(move || shared.write_all(stream, &notice))?;
        Ok(queue)
    }

    /// Adds a line, which must end with a newline, or drops and counts it. Never blocks.
    pub(super) fn push(&self, line: String) {
        let mut waiting = self.0.lock();
        let limit = if waiting.dropped > 0 { WAITING_MAX / 2 } else { WAITING_MAX };
        if waiting.bytes + line.len() + OVERHEAD > limit {
            waiting.dropped += 1;
            self.0.dropped.add(1);
            return;
        }
        if waiting.dropped > 0 {
            let dropped = std::mem::take(&mut waiting.dropped);
            waiting.push(Entry::Dropped(dropped));
        }
        waiting.push(Entry::Line(line));
        self.0.changed.notify_all();
    }

    /// Blocks until all lines are written, at most for `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut waiting = self.0.lock();
        while waiting.writing || !waiting.entries.is_empty() {
            let Some(remaining) = deadline.checked_duration_since(Instant::now()) else { return };
            let result = self.0.changed.wait_timeout(waiting, remaining);
            (waiting, _) = result.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the number of lines dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.get()
    }
}

impl Waiting {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.cost();
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.cost();
        Some(entry)
    }
}

impl Entry {
    fn cost(&self) -> usize {
        match self {
            Self::Line(line) => line.len() + OVERHEAD,
            Self::Dropped(_) => OVERHEAD,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of the thread, which runs as long as the process.
    fn write_all(&self, mut stream: impl Write + AsFd, notice: &Notice) {
        let mut reportable = true;
        loop {
            let (text, lines, unreported) = match self.next(reportable) {
                Entry::Line(line) => (line, 1, 1),
                Entry::Dropped(unreported) => (notice(unreported), 0, unreported),
            };
            let written = write(&mut stream, text.as_bytes());
            // After a failure the report is delayed until the next line, because it would fail, too.
            reportable = written.is_ok();
            if written.is_err() {
                self.dropped.add(lines);
                self.lock().dropped += unreported;
            }
        }
    }

    /// Waits for the next line. With `reportable`, returns a report of dropped lines once the queue is empty.
    fn next(&self, reportable: bool) -> Entry {
        let mut waiting = self.lock();
        waiting.writing = false;
        loop {
            if waiting.entries.is_empty() && waiting.dropped > 0 && reportable {
                let dropped = std::mem::take(&mut waiting.dropped);
                waiting.push(Entry::Dropped(dropped));
            }
            if let Some(entry) = waiting.pop() {
                waiting.writing = true;
                return entry;
            }
            self.changed.notify_all();
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes a whole line, even if another process has set the stream to non-blocking mode.
fn write(stream: &mut (impl Write + AsFd), mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match stream.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(stream, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn dropped_lines_are_reported_to_a_reader_that_stopped() {
        const LINES: u64 = 40_000;
        let (reader, writer) = io::pipe().expect("a pipe");
        let queue = Queue::start(writer, Box::new(|lines| format!("dropped {lines}\n"))).expect("a thread");
        for n in 0..LINES {
            queue.push(format!("line {n} {}\n", "x".repeat(64)));
        }
        let dropped = queue.dropped();
        assert!((1..LINES).contains(&dropped), "{dropped} of {LINES} dropped");
        queue.flush(Duration::from_millis(10));
        let (mut next, mut reported) = (0, 0);
        let mut lines = BufReader::new(reader).lines();
        for line in lines.by_ref() {
            let line = line.expect("text");
            let number = line.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a number");
            if line.starts_with("dropped ") {
                reported += number;
                next += number;
            } else {
                assert_eq!(number, next, "lost or out of order");
                next += 1;
            }
            if next == LINES {
                break;
            }
        }
        assert_eq!(reported, dropped, "the report");
        queue.push("after\n".to_owned());
        queue.flush(Duration::from_secs(60));
        assert_eq!(queue.dropped(), dropped, "nothing is dropped any longer");
    }

    #[test]
    fn a_write_error_does_not_stop_the_thread() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let queue = Queue::start(writer, Box::new(|lines| format!("dropped {lines}\n"))).expect("a thread");
        for _ in 0..3 {
            queue.push("line\n".to_owned());
            queue.flush(Duration::from_secs(60));
        }
        assert_eq!(queue.dropped(), 3);
    }
}
