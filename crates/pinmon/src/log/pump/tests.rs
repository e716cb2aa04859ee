use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::fd::AsFd,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::*;
use crate::log::pipe_marker::PipeMarker;
use crate::log::{journal::Phase, recover::recover};

/// A FIFO with the ends of container and monitor, a log and a pump.
struct Bench {
    _directory: tempfile::TempDir,
    container: File,
    monitor: File,
    log: PathBuf,
    sink: Sink,
    taps: Taps,
    pump: Pump,
    pipe_marker: PipeMarker,
}

fn journal(directory: &Path) -> Journal {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join("journal"))
        .expect("open");
    Journal::map(file.into()).expect("map")
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let (fifo, log) = (directory.path().join("stdout"), directory.path().join("0.log"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).expect("mkfifo");
        let monitor = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).expect("open");
        let container = OpenOptions::new().read(true).write(true).open(&fifo).expect("open");
        let sink = Sink::new(Some(open_log(&log).into()), None, Default::default());
        let pump = Pump::new(journal(directory.path())).expect("pump");
        let pipe_marker = PipeMarker::new().expect("shared words");
        Self { container, monitor, log, sink, taps: Taps::default(), pump, pipe_marker, _directory: directory }
    }

    fn pass(&mut self) -> PassOutcome {
        let (fd, calls) = (self.monitor.as_fd(), PipeCalls::of(&self.pipe_marker, 1));
        let source = Source { container: "c", kind: StreamKind::Stdout, fd, calls, line_max: 64, flush: false };
        self.pump.fifo(source, &mut self.sink, &mut self.taps).expect("pass")
    }

    fn drain(&mut self) -> PassOutcome {
        loop {
            match self.pass() {
                PassOutcome::Moved(_) => {}
                end => return end,
            }
        }
    }

    /// Returns tag and text of each log entry.
    fn entries(&self) -> Vec<String> {
        let text = fs::read(&self.log).expect("log");
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split_terminator('\n')
            .map(|line| line.split_once(" stdout ").map_or(line, |(_, text)| text).to_owned())
            .collect()
    }

    fn write(&mut self, data: &[u8]) {
        self.container.write_all(data).expect("write to the FIFO");
    }
}

fn open_log(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).expect("open log")
}

#[test]
fn whole_lines_move_and_a_partial_one_waits_in_the_fifo() {
    let mut bench = Bench::new();
    assert_eq!(bench.drain(), PassOutcome::Empty);
    bench.write(b"one\ntwo\nthr");
    assert_eq!(bench.drain(), PassOutcome::Partial);
    assert_eq!(bench.entries(), ["F one", "F two"]);
    assert_eq!(rustix::io::ioctl_fionread(&bench.monitor).expect("FIONREAD"), 3);
    bench.write(b"ee\n");
    bench.drain();
    assert_eq!(bench.entries(), ["F one", "F two", "F three"]);
    bench.write(b"end");
    bench.container = File::open("/dev/null").expect("close the container's end");
    assert_eq!(bench.drain(), PassOutcome::Ended);
    assert_eq!(bench.entries()[3..], ["P end"]);
}

#[test]
fn long_lines_are_cut_and_binary_output_is_preserved() {
    let mut bench = Bench::new();
    bench.write(&[b'x'; 130]);
    bench.write(b"\n\0\xff\x01\n\n");
    bench.drain();
    let text = fs::read(&bench.log).expect("log");
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').map(|line| line.get(38..).unwrap_or(line)).collect();
    let x = |tag: &str, n| [tag.as_bytes(), &[b'x'; 64][..n]].concat();
    assert_eq!(lines, [&x("P ", 64)[..], &x("P ", 64), &x("F ", 2), b"F \0\xff\x01", b"F ", b""]);
}

#[test]
fn a_fifo_that_is_full_with_few_bytes_is_moved() {
    let mut bench = Bench::new();
    rustix::pipe::fcntl_setpipe_size(&bench.container, 4096).expect("F_SETPIPE_SZ");
    let pipe_marker = PipeMarker::new().expect("shared words");
    let calls = PipeCalls::of(&pipe_marker, 1);
    let source = |fd| Source { container: "c", kind: StreamKind::Stdout, fd, calls, line_max: 16384, flush: false };
    // Its only buffer is used: another write would block although the pipe is not full.
    bench.write(&[b'a'; 100]);
    let fd = bench.monitor.as_fd();
    let pass = bench.pump.fifo(source(fd), &mut bench.sink, &mut bench.taps).expect("pass");
    assert!(matches!(pass, PassOutcome::Moved(_)), "{pass:?}");
    assert_eq!(bench.entries()[0].len(), 102);
}

#[test]
fn more_buffers_than_can_be_peeked_are_moved() {
    let mut bench = Bench::new();
    rustix::pipe::fcntl_setpipe_size(&bench.container, 256 * 4096).expect("F_SETPIPE_SZ");
    // With O_DIRECT, every write uses its own buffer.
    rustix::fs::fcntl_setfl(&bench.container, OFlags::DIRECT | OFlags::RDWR).expect("F_SETFL");
    (0..40).for_each(|_| bench.write(b"b"));
    bench.drain();
    bench.write(b"\n");
    bench.drain();
    let all: String = bench.entries().iter().map(|entry| entry[2..].to_owned()).collect();
    assert_eq!(all, "b".repeat(40));
    assert!(bench.entries().last().is_some_and(|entry| entry.starts_with('F')));
}

#[test]
fn an_interrupted_batch_is_written_exactly_once() {
    // Progress of the dead monitor: journaled; half of the log; the whole log; half consumed; all consumed.
    for step in 0..5 {
        let mut bench = Bench::new();
        bench.write(b"before\n");
        bench.drain();
        bench.write(b"one\ntwo\nrest");
        let journal = &mut bench.pump.journal;
        journal.data_mut()[..8].copy_from_slice(b"one\ntwo\n");
        let log = bench.sink.position();
        journal.prepare(&Entry { container: "c".into(), stream: StreamKind::Stdout, log, length: 8 });
        if step == 1 {
            open_log(&bench.log).write_all(b"2026-01-01T00:00:00.000000000Z stdout F one\n2026").expect("write");
        }
        if step >= 2 {
            let entry = "2026-01-01T00:00:00.000000000Z stdout F";
            open_log(&bench.log).write_all(format!("{entry} one\n{entry} two\n").as_bytes()).expect("write");
            bench.pump.journal.written();
        }
        if step >= 3 {
            let part = 0..if step == 3 { 3 } else { 8 };
            consume(&mut bench.pump.journal, bench.monitor.as_fd(), part).expect("consume");
        }
        // Recovery by the successor.
        let (phase, entry) = bench.pump.journal.pending().expect("pending").expect("a batch");
        assert_eq!((entry.container.as_str(), phase == Phase::Written), ("c", step >= 2));
        for _again in 0..2 {
            recover(
                &mut bench.pump.journal,
                Some((bench.monitor.as_fd(), PipeCalls::of(&bench.pipe_marker, 1))),
                &mut bench.sink,
                64,
            )
            .expect("recover");
        }
        assert!(bench.pump.journal.pending().expect("pending").is_none());
        bench.write(b"\n");
        bench.drain();
        assert_eq!(bench.entries(), ["F before", "F one", "F two", "F rest"], "interrupted at step {step}");
    }
}

#[test]
fn output_read_from_a_terminal_survives() {
    for phase in [Phase::Reading, Phase::Received] {
        let mut bench = Bench::new();
        let log = bench.sink.position();
        let journal = &mut bench.pump.journal;
        journal.reading(&Entry { container: "c".into(), stream: StreamKind::Stdout, log, length: 0 });
        journal.landing_mut()[..7].copy_from_slice(b"ok\r\n/ #");
        if phase == Phase::Received {
            journal.received(7, log);
            open_log(&bench.log).write_all(b"2026-01-01T00:00:00.000000000Z stdout F o").expect("write");
        }
        recover(&mut bench.pump.journal, None, &mut bench.sink, 64).expect("recover");
        assert_eq!(bench.entries(), ["F ok\r", "P / #"]);
    }
}

#[test]
fn attached_clients_get_output_at_once_and_pause_the_stream_when_full() {
    let mut bench = Bench::new();
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).expect("F_SETFL");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("F_SETPIPE_SZ");
    let number = 7;
    bench.taps.add(number, StreamKind::Stdout, writer.into());
    bench.write(b"$ ");
    bench.drain();
    assert_eq!(bench.entries(), ["P $ "]);
    bench.write(&[b'z'; 5000]);
    bench.drain();
    assert!(bench.taps.is_backlogged());
    let mut received = Vec::new();
    while received.len() < 5002 {
        let mut chunk = [0; 4096];
        let n = reader.read(&mut chunk).expect("read");
        received.extend_from_slice(&chunk[..n]);
        bench.taps.ready(number, false);
    }
    assert!(!bench.taps.is_backlogged());
    assert_eq!(received, [b"$ ".as_slice(), &[b'z'; 5000]].concat());
    bench.write(&[b'z'; 5000]);
    bench.drain();
    bench.taps.expire(after_client_timeout());
    assert!(bench.taps.is_empty(), "a client that takes nothing is dropped");
    assert_eq!(bench.taps.take_gone(), [number]);
}

fn after_client_timeout() -> std::time::Duration {
    crate::clock::monotonic() + crate::log::taps::CLIENT_TIMEOUT * 2
}
