use std::io::{Read, Write, pipe};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::store::{BLOCKED, BLOCKED_MAX};

/// Timeout for a broken run.
const LONG: Duration = Duration::from_secs(10);

fn calls() -> Arc<PipeCalls> {
    Arc::default()
}

#[tokio::test]
async fn a_stream_is_read_to_its_end_and_no_faster_than_the_caller_takes_it() {
    let (theirs, mut ours) = pipe().expect("pipe");
    let mut reader = SharedPipe::new(theirs.into(), &calls()).reader().expect("reader");
    let writing = std::thread::spawn(move || {
        for round in 0..100u8 {
            ours.write_all(&[round; 10_000]).expect("write");
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!writing.is_finished(), "a megabyte is not read ahead");
    let mut bytes = Vec::new();
    timeout(LONG, reader.read_to_end(&mut bytes)).await.expect("the stream ends").expect("read");
    writing.join().expect("written");
    assert_eq!(bytes.len(), 1_000_000);
    assert!(
        bytes.chunks(10_000).enumerate().all(|(round, bytes)| bytes.iter().all(|byte| usize::from(*byte) == round))
    );
}

#[tokio::test]
async fn output_is_read_beyond_what_is_kept() {
    let (theirs, mut ours) = pipe().expect("pipe");
    let reader = SharedPipe::new(theirs.into(), &calls()).reader_of_all(1000).expect("reader");
    let writing = std::thread::spawn(move || {
        ours.write_all(&[7; 3_000_000]).expect("write");
        ours
    });
    let ours = tokio::task::spawn_blocking(|| writing.join().expect("written")).await.expect("everything is read");
    timeout(LONG, reader.drained(usize::MAX)).await.expect("the pipe is empty");
    assert!(timeout(Duration::from_millis(10), reader.ended()).await.is_err(), "the pipe is open");
    drop(ours);
    timeout(LONG, reader.ended()).await.expect("the end of the stream");
    assert_eq!(reader.into_bytes().expect("read"), [7; 1000]);
}

#[tokio::test]
async fn a_write_is_complete_when_it_is_flushed() {
    let (mut theirs, ours) = pipe().expect("pipe");
    let mut writer = SharedPipe::new(ours.into(), &calls()).writer().expect("writer");
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).map(|_| bytes)
    });
    writer.write_all(&bytes).await.expect("write");
    writer.flush().await.expect("flush");
    drop(writer);
    let read = tokio::task::spawn_blocking(|| reading.join().expect("no panic")).await.expect("the pipe is closed");
    assert_eq!(read.expect("read"), bytes);
}

#[tokio::test]
async fn writing_to_a_pipe_without_readers_is_an_error() {
    let (theirs, ours) = pipe().expect("pipe");
    let mut writer = SharedPipe::new(ours.into(), &calls()).writer().expect("writer");
    drop(theirs);
    writer.write_all(b"a line").await.expect("accepted");
    assert_eq!(writer.flush().await.expect_err("no reader").kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(writer.write(b"a line").await.expect_err("no reader").kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_dropped_pipe_is_closed_by_another_thread() {
    let (mut theirs, ours) = pipe().expect("pipe");
    drop(SharedPipe::new(ours.try_clone().expect("duplicate").into(), &calls()));
    close_all(vec![ours.into()]);
    theirs.read_to_end(&mut Vec::new()).expect("the other end is closed");
}

#[test]
fn a_container_with_too_many_blocked_calls_is_refused() {
    let calls = calls();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    for _ in 0..BLOCKED_MAX {
        let (calls, released) = (Arc::clone(&calls), Arc::clone(&released));
        threads::run(move || calls.during(|| released.lock().expect("no panic").recv_timeout(LONG)).expect("released"));
    }
    std::thread::sleep(2 * BLOCKED);
    let error = calls.check().expect_err("refused");
    assert_eq!(error.kind, crate::ErrorKind::FailedPrecondition, "{error}");
    (0..BLOCKED_MAX).for_each(|_| release.send(()).expect("the calls wait"));
    let begin = Instant::now();
    while calls.check().is_err() {
        assert!(begin.elapsed() < LONG, "the calls return");
        std::thread::sleep(Duration::from_millis(1));
    }
}
