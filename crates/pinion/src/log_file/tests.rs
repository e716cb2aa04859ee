use std::{fs, io::Write};

use super::*;

fn all(log: &mut LogFile) -> Vec<Entry> {
    std::iter::from_fn(|| log.next().expect("read")).collect()
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|e| String::from_utf8_lossy(&e.text).into_owned()).collect()
}

fn line(text: &str) -> String {
    format!("2026-01-01T00:00:00.000000001Z stdout {text}\n")
}

#[test]
fn lines_without_the_format_are_skipped() {
    let whole = Entry::parse(b"2026-01-01T00:00:00Z stderr F a b\n").expect("valid");
    assert!(whole.stderr && whole.text == b"a b\n");
    assert_eq!(Entry::parse(b"2026-01-01T00:00:00Z stdout P \n").map(|e| e.text), Some(Vec::new()));
    assert_eq!(Entry::parse(b"2026-01-01T00:00:00Z stdout F:x t\n").map(|e| e.text), Some(b"t\n".to_vec()));
    for invalid in [&b"nonsense\n"[..], b"t stdout X a\n", b"t other F a\n"] {
        assert_eq!(Entry::parse(invalid), None);
    }
}

#[test]
fn an_incomplete_line_is_returned_when_its_end_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let mut file = File::create(&path).expect("made");
    let text = line("F hello");
    write!(file, "{}", &text[..40]).expect("written");
    let mut log = LogFile::open(&path).expect("opened");
    assert_eq!(log.next().expect("read"), None);
    write!(file, "{}", &text[40..]).expect("written");
    assert_eq!(log.next().expect("read").map(|e| e.text), Some(b"hello\n".to_vec()));
}

#[test]
fn a_rotation_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    fs::write(&path, line("F 1")).expect("written");
    let mut log = LogFile::open(&path).expect("opened");
    assert_eq!(texts(&all(&mut log)), ["1\n"]);
    let old = dir.path().join("0.log.old");
    fs::rename(&path, &old).expect("renamed");
    assert_eq!(log.next().expect("read"), None, "the next file does not exist yet");
    let mut late = File::options().append(true).open(&old).expect("opened");
    write!(late, "{}", line("F 2")).expect("written");
    fs::write(&path, line("F 3")).expect("written");
    assert_eq!(texts(&all(&mut log)), ["2\n", "3\n"]);
}

#[test]
fn the_tail_counts_lines_not_entries() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let all = [line("F 1"), line("P 2"), line("F 2"), line("F 3"), line("P 4")].concat();
    fs::write(&path, all).expect("written");
    let tail = |n| texts(&LogFile::open(&path).expect("opened").tail(n, |_| true).expect("read"));
    assert_eq!(tail(0), Vec::<String>::new());
    assert_eq!(tail(1), ["3\n", "4"]);
    assert_eq!(tail(2), ["2", "2\n", "3\n", "4"]);
    assert_eq!(tail(9).len(), 5);
}

#[test]
fn old_lines_can_be_skipped() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    fs::write(&path, "2026-01-01T00:00:00Z stdout F old\n2026-01-01T00:00:01Z stdout F new\n").expect("written");
    let since = crate::timestamp::parse("2026-01-01T00:00:01Z").expect("a timestamp");
    let mut log = LogFile::open(&path).expect("opened");
    assert_eq!(texts(&log.tail(9, |entry| entry.is_since(since)).expect("read")), ["new\n"]);
}
