use std::{
    fs,
    io::{ErrorKind, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    thread,
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const OUT: u32 = 0x4;

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    (Connection::new(ours).expect("watched"), theirs)
}

/// The events that each descriptor of this process is watched for, by any epoll instance (proc_pid_fdinfo(5)).
fn watched() -> Vec<(RawFd, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo").expect("fdinfo").flatten() {
        // One that was closed meanwhile.
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        for line in text.lines().filter(|line| line.starts_with("tfd:")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let events = u32::from_str_radix(words[3], 16).expect("hexadecimal");
            found.push((words[1].parse().expect("a number"), events));
        }
    }
    found
}

fn is_watched_for_room(connection: &Connection) -> bool {
    let fd = connection.stream.get_ref().as_raw_fd();
    let events = watched().into_iter().find(|(of, _)| *of == fd).expect("it is watched").1;
    assert_ne!(events & 0x1, 0, "for reading");
    events & OUT != 0
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_socket_holds_goes_through_whole() {
    let (mut connection, mut theirs) = pair();
    assert!(!is_watched_for_room(&connection));
    let bytes: Vec<u8> = (0..8u32 << 20).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let reader = thread::spawn(move || {
        let mut read = vec![0; expected.len()];
        // Slower than the writer: it waits for room.
        thread::sleep(Duration::from_millis(50));
        theirs.read_exact(&mut read).expect("all of it");
        assert!(read == expected, "other bytes");
        theirs.write_all(&read).expect("the way back");
    });
    let write = async {
        connection.write_all(&bytes).await.expect("written");
        assert!(connection.room.is_watched(), "the socket was full at least once");
        connection.flush().await.expect("flushed");
        assert!(!connection.room.is_watched());
        assert!(!is_watched_for_room(&connection));
        let mut back = Vec::new();
        connection.read_to_end(&mut back).await.expect("read");
        assert!(back == bytes, "other bytes came back");
    };
    tokio::time::timeout(Duration::from_secs(60), write).await.expect("it does not hang");
    reader.join().expect("the reader");
}

#[tokio::test]
async fn a_reader_that_goes_ends_a_write_that_waits() {
    let (mut connection, theirs) = pair();
    let closer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(theirs);
    });
    let write = connection.write_all(&[0; 8 << 20]);
    let error = tokio::time::timeout(Duration::from_secs(60), write).await.expect("it ends").expect_err("nobody reads");
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    closer.join().expect("the closer");
}

#[tokio::test]
async fn the_end_of_the_stream_is_read_after_a_short_read() {
    let (mut connection, mut theirs) = pair();
    theirs.write_all(b"last words").expect("written");
    drop(theirs);
    let mut text = String::new();
    let read = connection.read_to_string(&mut text);
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("it ends").expect("read");
    assert_eq!(text, "last words");
    connection.shutdown().await.expect("a second time is no error");
}
