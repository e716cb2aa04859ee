use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const IN: u32 = 0x1;
const OUT: u32 = 0x4;
/// Timeout that only ends tests that hang; it measures nothing.
const LONG: Duration = Duration::from_secs(60);
const MUCH: usize = 8 << 20;

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    (Connection::new(ours).expect("register"), theirs)
}

/// Returns the events that the socket is registered for, with any of its descriptors, in any epoll instance of this
/// process. An instance may have several descriptors (proc_pid_fdinfo(5)).
fn registered_events(connection: &Connection) -> Vec<u32> {
    let socket = rustix::fs::fstat(connection.stream.get_ref()).expect("fstat").st_ino;
    let mut events_by_descriptor = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fdinfo").expect("fdinfo").flatten() {
        // The descriptor may have been closed in the meantime.
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        for line in text.lines().filter(|line| line.starts_with("tfd:")) {
            let field = |name: &str| {
                let (_, rest) = line.split_once(name).expect("its field");
                u64::from_str_radix(rest.split_whitespace().next().expect("a value"), 16).expect("hexadecimal")
            };
            if field("ino:") == socket {
                events_by_descriptor.insert((field("tfd:"), u32::try_from(field("events:")).expect("32 bits")));
            }
        }
    }
    events_by_descriptor.into_iter().map(|(_, events)| events).collect()
}

fn is_registered_for_reading_only(connection: &Connection) -> bool {
    matches!(registered_events(connection)[..], [events] if events & IN != 0 && events & OUT == 0)
}

/// Writes more than fits into the socket to a reader that starts late, and reads the data back.
async fn write_and_read_back(connection: &mut Connection, mut theirs: UnixStream, watches: bool) {
    let bytes: Vec<u8> = (0..MUCH).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let (begin, begun) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        begun.recv().expect("the start signal");
        let mut read = vec![0; expected.len()];
        theirs.read_exact(&mut read).expect("read all data");
        assert!(read == expected, "the data differs");
        theirs.write_all(&read).expect("write the data back");
    });
    let both = async {
        let mut written = 0;
        // Write until the socket is full.
        while let Ok(more) = tokio::time::timeout(Duration::from_millis(50), connection.write(&bytes[written..])).await
        {
            written += more.expect("write");
        }
        assert!(written < MUCH, "the reader has not started");
        assert_eq!(registered_events(connection).iter().any(|events| events & OUT != 0), watches);
        begin.send(()).expect("the reader is waiting");
        connection.write_all(&bytes[written..]).await.expect("write");
        connection.flush().await.expect("flush");
        assert!(is_registered_for_reading_only(connection), "{:x?}", registered_events(connection));
        let mut back = Vec::new();
        connection.read_to_end(&mut back).await.expect("read");
        assert!(back == bytes, "the data read back differs");
    };
    tokio::time::timeout(LONG, both).await.expect("timed out");
    reader.join().expect("the reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_registered_for_writing_only_while_it_is_full() {
    let (mut connection, theirs) = pair();
    assert!(is_registered_for_reading_only(&connection), "{:x?}", registered_events(&connection));
    write_and_read_back(&mut connection, theirs, true).await;
}

/// Runs in a separate process, because the limit applies to the whole process.
#[test]
fn write_readiness_is_polled_without_descriptors() {
    const INSIDE: &str = "READINESS_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("this program");
        let name = "connection::tests::write_readiness_is_polled_without_descriptors";
        let run = std::process::Command::new(this).args([name, "--exact", "--nocapture"]).env(INSIDE, "1").output();
        let run = run.expect("run the test");
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&run.stderr));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (mut connection, mut theirs) = pair();
        let maximum = getrlimit(Resource::Nofile).maximum;
        let mut held = Vec::new();
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).expect("setrlimit");
        while let Ok(file) = fs::File::open("/dev/null") {
            held.push(file);
        }
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            theirs.read_exact(&mut vec![0; MUCH]).expect("read all data");
        });
        let write = connection.write_all(&[7; MUCH]);
        tokio::time::timeout(LONG, write).await.expect("timed out").expect("write");
        reader.join().expect("the reader");
    });
}

#[tokio::test]
async fn a_blocked_write_fails_when_the_reader_disconnects() {
    let (mut connection, theirs) = pair();
    let closer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(theirs);
    });
    let write = connection.write_all(&[0; MUCH]);
    let error = tokio::time::timeout(LONG, write).await.expect("timed out").expect_err("the reader has disconnected");
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    closer.join().expect("the closer");
}

#[tokio::test]
async fn the_end_of_the_stream_is_read_after_a_short_read() {
    let (mut connection, mut theirs) = pair();
    theirs.write_all(b"last words").expect("write");
    drop(theirs);
    let mut text = String::new();
    let read = connection.read_to_string(&mut text);
    tokio::time::timeout(LONG, read).await.expect("timed out").expect("read");
    assert_eq!(text, "last words");
    connection.shutdown().await.expect("a shutdown after the end succeeds");
}
