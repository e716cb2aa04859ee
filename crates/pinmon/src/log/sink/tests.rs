use std::fs::{self, OpenOptions};

use super::*;

fn piece(data: &[u8]) -> [Piece; 1] {
    [Piece { start: 0, end: data.len(), full: true }]
}

#[test]
fn lost_output_is_counted_and_reported_in_the_log_once_it_can_be_written() {
    let directory = tempfile::tempdir().expect("tempdir");
    let path = directory.path().join("0.log");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
    let mut sink = Sink::new(Some(full.into()), None, Loss::default());
    for _ in 0..3 {
        sink.write((None, StreamKind::Stdout), b"lost\n", &piece(b"lost\n"));
    }
    let (loss, message) = sink.take_loss().expect("a loss");
    assert!(message.is_some_and(|message| message.contains("No space left")));
    assert_eq!((loss.total, loss.report_at), (15, 20), "reported at the first loss and when it doubled");
    assert!(sink.take_loss().is_none());

    sink.reopen(OpenOptions::new().append(true).create(true).open(&path).expect("open").into(), None);
    sink.write((sink.position(), StreamKind::Stdout), b"back\n", &piece(b"back\n"));
    sink.write((sink.position(), StreamKind::Stdout), b"again\n", &piece(b"again\n"));
    let text = fs::read_to_string(&path).expect("read");
    let lines: Vec<&str> = text.lines().map(|line| &line[31..]).collect();
    assert!(lines[0].starts_with("stderr F [pinmon: 15 bytes of output were dropped here: No space left"), "{lines:?}");
    assert_eq!(lines[1..], ["stdout F back", "stdout F again"]);
    let (loss, message) = sink.take_loss().expect("the reported loss");
    assert_eq!((loss.total, loss.unwritten, message), (15, None, None));
}

#[test]
fn a_log_is_cut_back_only_if_it_is_the_same_file_and_longer() {
    let directory = tempfile::tempdir().expect("tempdir");
    let path = directory.path().join("0.log");
    fs::write(&path, "0123456789").expect("write");
    let sink =
        Sink::new(Some(OpenOptions::new().append(true).open(&path).expect("open").into()), None, Loss::default());
    let at = sink.position().expect("a regular file");
    for (to, expected) in [
        (LogPosition { size: 20, ..at }, 10),
        (LogPosition { inode: at.inode + 1, size: 4, ..at }, 10),
        (LogPosition { size: 4, ..at }, 4),
        (LogPosition { size: 8, ..at }, 4),
    ] {
        sink.cut_back(to).expect("cut back");
        assert_eq!(fs::metadata(&path).expect("stat").len(), expected, "{to:?}");
    }
}
