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
/// A bound for a broken run, not a measure.
const LONG: Duration = Duration::from_secs(60);
const MUCH: usize = 8 << 20;

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    (Connection::new(ours).expect("watched"), theirs)
}

/// What the socket is watched for by any descriptor of it, and any epoll instance of this process, which may itself
/// have several descriptors (proc_pid_fdinfo(5)).
fn watched(connection: &Connection) -> Vec<u32> {
    let socket = rustix::fs::fstat(connection.stream.get_ref()).expect("fstat").st_ino;
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fdinfo").expect("fdinfo").flatten() {
        // One that was closed meanwhile.
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        for line in text.lines().filter(|line| line.starts_with("tfd:")) {
            let field = |name: &str| {
                let (_, rest) = line.split_once(name).expect("its field");
                u64::from_str_radix(rest.split_whitespace().next().expect("a value"), 16).expect("hexadecimal")
            };
            if field("ino:") == socket {
                found.insert((field("tfd:"), u32::try_from(field("events:")).expect("32 bits")));
            }
        }
    }
    found.into_iter().map(|(_, events)| events).collect()
}

fn is_watched_for_reading_alone(connection: &Connection) -> bool {
    matches!(watched(connection)[..], [events] if events & IN != 0 && events & OUT == 0)
}

/// Writes much to a reader that begins late, and reads it back.
async fn there_and_back(connection: &mut Connection, mut theirs: UnixStream, watches: bool) {
    let bytes: Vec<u8> = (0..MUCH).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let (begin, begun) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        begun.recv().expect("the socket is full");
        let mut read = vec![0; expected.len()];
        theirs.read_exact(&mut read).expect("all of it");
        assert!(read == expected, "other bytes");
        theirs.write_all(&read).expect("the way back");
    });
    let both = async {
        let mut written = 0;
        // Until it is full.
        while let Ok(more) = tokio::time::timeout(Duration::from_millis(50), connection.write(&bytes[written..])).await
        {
            written += more.expect("written");
        }
        assert!(written < MUCH, "nobody reads yet");
        assert_eq!(watched(connection).iter().any(|events| events & OUT != 0), watches);
        begin.send(()).expect("it waits");
        connection.write_all(&bytes[written..]).await.expect("written");
        connection.flush().await.expect("flushed");
        assert!(is_watched_for_reading_alone(connection), "{:x?}", watched(connection));
        let mut back = Vec::new();
        connection.read_to_end(&mut back).await.expect("read");
        assert!(back == bytes, "other bytes came back");
    };
    tokio::time::timeout(LONG, both).await.expect("it does not hang");
    reader.join().expect("the reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_watched_for_while_there_is_none() {
    let (mut connection, theirs) = pair();
    assert!(is_watched_for_reading_alone(&connection), "{:x?}", watched(&connection));
    there_and_back(&mut connection, theirs, true).await;
}

/// In a process of its own: the limit is the whole process's.
#[test]
fn room_is_found_where_it_cannot_be_watched_for() {
    const INSIDE: &str = "READINESS_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("this program");
        let name = "connection::tests::room_is_found_where_it_cannot_be_watched_for";
        let run = std::process::Command::new(this).args([name, "--exact", "--nocapture"]).env(INSIDE, "1").output();
        let run = run.expect("it runs");
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
            theirs.read_exact(&mut vec![0; MUCH]).expect("all of it");
        });
        let write = connection.write_all(&[7; MUCH]);
        tokio::time::timeout(LONG, write).await.expect("it does not hang").expect("no error");
        reader.join().expect("the reader");
    });
}

#[tokio::test]
async fn a_reader_that_goes_ends_a_write_that_waits() {
    let (mut connection, theirs) = pair();
    let closer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(theirs);
    });
    let write = connection.write_all(&[0; MUCH]);
    let error = tokio::time::timeout(LONG, write).await.expect("it ends").expect_err("nobody reads");
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
    tokio::time::timeout(LONG, read).await.expect("it ends").expect("read");
    assert_eq!(text, "last words");
    connection.shutdown().await.expect("a shutdown after the end succeeds");
}
