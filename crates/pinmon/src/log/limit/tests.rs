use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::CWD;

use super::*;
use crate::{
    log::{
        format::{Piece, cut},
        journal::{Entry, Journal},
        pump::{receive, write_all},
        recover::recover,
        sink::{Loss, Sink},
    },
    stream::StreamKind,
};

const SIZE_MAX: u64 = 10_000;

struct Log {
    directory: tempfile::TempDir,
    sink: Sink,
}

fn limit(directory: &Path, size_max: u64) -> SizeLimit {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let directory = rustix::fs::open(directory, flags, Mode::empty()).expect("the directory");
    SizeLimit { limit: LogLimit { size_max, name: "0.log".into() }, directory }
}

fn open(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).expect("open")
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let file = open(&directory.path().join("0.log"));
        file.set_permissions(fs::Permissions::from_mode(0o604)).expect("chmod");
        let limit = limit(directory.path(), SIZE_MAX);
        Self { sink: Sink::new(Some(file.into()), Some(limit), Loss::default()), directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("0.log")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).expect("the log")
    }

    fn size(&self) -> u64 {
        fs::metadata(self.path()).expect("the log").len()
    }

    /// Writes as many pieces as fit, and returns the number of bytes that they cover.
    fn write(&mut self, data: &[u8]) -> usize {
        let mut pieces: Vec<Piece> = Vec::new();
        cut(data, 4096, true, &mut pieces);
        let used = self.sink.fit(&mut pieces).expect("a limit");
        self.sink.write((self.sink.position(), StreamKind::Stdout), data, &pieces);
        used
    }
}

#[test]
fn a_log_is_replaced_by_an_empty_one_before_it_exceeds_its_maximum_size() {
    let mut log = Log::new();
    let line = [&[b'x'; 59][..], b"\n"].concat();
    let many = line.repeat(250);
    let (mut total, mut inodes) = (0, Vec::new());
    for _ in 0..20 {
        let used = log.write(&many);
        assert!(used > 0 && used.is_multiple_of(60), "{used}");
        total += used / 60;
        assert!(log.size() <= SIZE_MAX, "{}", log.size());
        let metadata = fs::metadata(log.path()).expect("the log");
        assert_eq!(metadata.mode() & 0o7777, 0o604);
        inodes.push(metadata.ino());
    }
    inodes.dedup();
    assert!(inodes.len() > 10, "{inodes:?}");
    let text = log.text();
    let notice = text.lines().next().expect("a line");
    assert!(
        notice.contains("stderr F [pinmon: ") && notice.contains("the log reached its maximum size, 10000 bytes"),
        "{notice}"
    );
    // What the notices count and what the log has is all that was written.
    let (loss, message) = log.sink.take_loss().expect("a loss");
    let entries = text.lines().filter(|line| line.contains("stdout F")).count();
    assert!(message.is_some() && total > entries);
    assert!(loss.total >= ((total - entries) * 100) as u64, "{loss:?}");
    assert_eq!(fs::read_dir(log.directory.path()).expect("list").count(), 1);
}

#[test]
fn a_log_that_the_kubelet_has_renamed_is_neither_counted_as_lost_nor_emptied() {
    let mut log = Log::new();
    log.write(&b"first\n".repeat(200));
    let (rotated, size) = (log.directory.path().join("0.log.20260101"), log.size());
    fs::rename(log.path(), &rotated).expect("rotated");
    while log.write(&b"next\n".repeat(200)) > 0 && !log.path().exists() {}
    log.sink.replaced_logs_expire();
    assert!(fs::metadata(&rotated).expect("the rotated log").len() > size);
    assert_eq!(log.sink.take_loss(), None);
    assert!(!log.text().contains("pinmon"), "{}", log.text());
}

#[test]
fn a_log_writer_continues_in_the_file_that_another_one_has_replaced_it_by() {
    let mut log = Log::new();
    let stale = File::open(log.path()).expect("open");
    while fs::metadata(log.path()).expect("the log").ino() == stale.metadata().expect("the log").ino() {
        log.write(&b"line\n".repeat(50));
    }
    let file = rustix::fs::open(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stale)),
        OFlags::PATH,
        Mode::empty(),
    );
    let next = Sink::new(Some(file.expect("a path")), Some(limit(log.directory.path(), SIZE_MAX)), Loss::default());
    assert_eq!(next.position(), log.sink.position());
    // Its blocks are freed although this process has it open.
    log.sink.replaced_logs_expire();
    assert_eq!(stale.metadata().expect("the old log").len(), 0);
}

#[test]
fn output_is_dropped_while_a_full_log_cannot_be_replaced() {
    let mut log = Log::new();
    while log.size() < SIZE_MAX - 100 {
        log.write(&[&[b'y'; 30][..], b"\n"].concat());
    }
    // A directory of the name of the new file is not removed by unlink(2).
    let blocker = log.directory.path().join(".0.log.new");
    fs::create_dir(&blocker).expect("a directory");
    let before = log.size();
    assert_eq!(log.write(&[b'z'; 100]), 100);
    assert_eq!(log.size(), before);
    let (loss, message) = log.sink.take_loss().expect("a loss");
    assert!(loss.total == 100 && message.is_some_and(|why| why.contains("replacing it failed")));
    fs::remove_dir(&blocker).expect("removed");
    log.write(b"again\n");
    assert!(log.text().ends_with("stdout F again\n"), "{}", log.text());
    assert!(log.size() < 1000);
}

#[test]
fn output_of_a_terminal_that_was_interrupted_at_the_maximum_size_is_written_once() {
    let mut log = Log::new();
    let file = File::create_new(log.directory.path().join("journal")).expect("create");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut journal = Journal::map(file.into()).expect("map");
    while log.size() < SIZE_MAX - 100 {
        log.write(&[&[b'y'; 30][..], b"\n"].concat());
    }
    let at = log.sink.position();
    journal.reading(&Entry { container: "c".into(), stream: StreamKind::Stdout, log: at, length: 0 });
    journal.landing_mut()[..9].copy_from_slice(b"a\r\nb\r\nc\r\n");
    for _killed in 0..3 {
        // The batch is in the new file, and this is recorded before anything of it is written.
        receive(&mut journal, 9, &mut log.sink, 64);
        let (_, entry) = journal.pending().expect("valid").expect("a batch");
        assert!(entry.log == log.sink.position() && entry.log != at);
        write_all(&journal.landing()[..9], (StreamKind::Stdout, 64), &mut log.sink, &mut Vec::new());
        log.sink.cut_back(entry.log.expect("a position")).expect("cut back");
    }
    recover(&mut journal, None, &mut log.sink, 64).expect("recovered");
    let entries = log.text().lines().filter(|line| line.contains("stdout F")).count();
    assert_eq!(entries, 3, "{}", log.text());
}

#[test]
fn a_link_or_fifo_in_place_of_the_log_is_not_opened() {
    let directory = tempfile::tempdir().expect("tempdir");
    let (limit, path) = (limit(directory.path(), SIZE_MAX), directory.path().join("0.log"));
    assert!(limit.open().is_none());
    std::os::unix::fs::symlink("/dev/null", &path).expect("link");
    assert!(limit.open().is_none());
    fs::remove_file(&path).expect("removed");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("FIFO");
    let _reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("open");
    assert!(limit.open().is_none());
}
