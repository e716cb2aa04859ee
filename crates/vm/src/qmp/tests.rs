use std::{
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream as Peer},
    },
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::*;

const GREETING: &str =
    r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}"#;
const TIMEOUT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

/// A QEMU of which each test decides what it sends.
struct Fake {
    peer: Peer,
}

impl Fake {
    fn send(&mut self, line: &str) {
        let sent = self.peer.write_all(format!("{line}\r\n").as_bytes());
        sent.expect("send");
    }

    /// Receives a command: its name and id, and the number of descriptors that came with it.
    fn receive(&mut self) -> (String, u64, usize) {
        let (mut line, mut count) = (Vec::new(), 0);
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut buffers = [io::IoSliceMut::new(&mut byte)];
            let received = recvmsg(&self.peer, &mut buffers, &mut control, RecvFlags::empty()).expect("receive");
            assert_eq!(received.bytes, 1, "closed");
            for message in control.drain() {
                let RecvAncillaryMessage::ScmRights(descriptors) = message else { continue };
                for descriptor in descriptors {
                    std::fs::File::from(descriptor).write_all(b"received").expect("write");
                    count += 1;
                }
            }
            line.push(byte[0]);
        }
        let command: Value = serde_json::from_slice(&line).expect("command");
        let name = command["execute"].as_str().expect("name").to_owned();
        (name, command["id"].as_u64().expect("id"), count)
    }
}

/// Connects to a fake that greets, and then runs `serve` on a thread.
async fn connect(timeout: Duration, serve: impl FnOnce(Fake) + Send + 'static) -> Result<Qmp, Error> {
    let (socket, peer) = Peer::pair().expect("socketpair");
    socket.set_nonblocking(true).expect("nonblocking");
    peer.set_read_timeout(Some(LONG)).expect("timeout");
    peer.set_write_timeout(Some(LONG)).expect("timeout");
    std::thread::spawn(move || {
        let mut fake = Fake { peer };
        fake.send(GREETING);
        let (name, id, _) = fake.receive();
        assert_eq!(name, "qmp_capabilities");
        fake.send(&format!(r#"{{"return": {{}}, "id": {id}}}"#));
        serve(fake);
    });
    Qmp::negotiate(UnixStream::from_std(socket).expect("socket"), timeout).await
}

/// Returns the kind of the error of a command, when QEMU does something else than to answer it.
async fn failure(timeout: Duration, serve: impl FnOnce(Fake) + Send + 'static) -> (ErrorKind, Qmp) {
    let qmp = connect(timeout, serve).await.expect("connected");
    let error = qmp.execute("query-status", json!({}), &[]).await.expect_err("failure");
    (error.kind, qmp)
}

#[tokio::test]
async fn answers_are_matched_by_id_and_refusals_are_errors() {
    let serve = |mut fake: Fake| {
        let commands = [fake.receive(), fake.receive(), fake.receive()];
        fake.send(r#"{"return": {}, "id": 987654321}"#);
        for (name, id, _) in commands.into_iter().rev() {
            fake.send(r#"{"event": "RESUME", "timestamp": {}}"#);
            match &*name {
                "c" => fake
                    .send(&format!(r#"{{"error": {{"class": "DeviceNotFound", "desc": "no\u0007 c"}}, "id": {id}}}"#)),
                "b" => fake.send(&format!(r#"{{"return": null, "id": {id}}}"#)),
                _ => fake.send(&format!(r#"{{"return": "{name}", "id": {id}}}"#)),
            }
        }
        fake.receive();
    };
    let qmp = connect(LONG, serve).await.expect("connected");
    assert_eq!(qmp.version(), Version { major: 7, minor: 2, micro: 22 });
    let execute = |name| qmp.execute(name, json!({}), &[]);
    let (a, b, c) = tokio::join!(execute("a"), execute("b"), execute("c"));
    assert_eq!((a, b), (Ok("a".into()), Ok(Value::Null)));
    let error = c.expect_err("refused");
    assert!(error.is_refusal("DeviceNotFound"));
    assert_eq!(error.to_string(), "QMP command c: no c");
}

#[tokio::test]
async fn known_events_are_delivered_and_lost_ones_counted() {
    let serve = |mut fake: Fake| {
        let (_, id, _) = fake.receive();
        fake.send(r#"{"event": "VSERPORT_CHANGE", "data": {}}"#);
        let extra = 3;
        for index in 0..event::QUEUE + extra {
            fake.send(&format!(r#"{{"event": "DEVICE_DELETED", "data": {{"device": "d{index}"}}}}"#));
        }
        fake.send(&format!(r#"{{"return": {{}}, "id": {id}}}"#));
    };
    let qmp = connect(LONG, serve).await.expect("connected");
    let mut events = qmp.events();
    qmp.execute("query-status", json!({}), &[]).await.expect("answer");
    let first = events.next().await.expect("event");
    assert_eq!(first, Event { kind: EventKind::DeviceDeleted, data: json!({ "device": "d3" }) });
    assert_eq!(events.lost(), 3);
    for _ in 1..event::QUEUE {
        events.next().await.expect("event");
    }
    assert_eq!(events.next().await, None);
    assert!(qmp.is_closed());
}

#[tokio::test]
async fn descriptors_travel_with_their_command() {
    let serve = |mut fake: Fake| {
        for _ in 0..2 {
            let (name, id, count) = fake.receive();
            assert_eq!(count, usize::from(name == "getfd"));
            fake.send(&format!(r#"{{"return": {{}}, "id": {id}}}"#));
        }
        fake.receive();
    };
    let qmp = connect(LONG, serve).await.expect("connected");
    let (mut reader, writer) = io::pipe().expect("pipe");
    qmp.execute("getfd", json!({ "fdname": "a" }), &[writer.as_fd()]).await.expect("answer");
    drop(writer);
    let mut received = String::new();
    reader.read_to_string(&mut received).expect("read");
    assert_eq!(received, "received");
    qmp.execute("query-status", json!({}), &[]).await.expect("answer");
}

#[tokio::test]
async fn unanswered_descriptors_close_the_connection() {
    let qmp = connect(TIMEOUT, |mut fake| while fake.receive().0 != "end" {}).await.expect("connected");
    let error = qmp.execute("query-status", json!({}), &[]).await.expect_err("silence");
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(!qmp.is_closed());
    let (_reader, writer) = io::pipe().expect("pipe");
    let error = qmp.execute("getfd", json!({ "fdname": "a" }), &[writer.as_fd()]).await.expect_err("silence");
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(qmp.is_closed());
    assert_eq!(qmp.execute("end", json!({}), &[]).await.expect_err("closed").kind, ErrorKind::Gone);
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    let garbage = [
        "",
        "x",
        "[]",
        "{}",
        r#"{"id": 2}"#,
        r#"{"return": {}}"#,
        "\u{0}",
        r#"{"error": {"class": "a", "desc": "b"}}"#,
        r#"{"return": {}, "id": -1}"#,
    ];
    for line in garbage {
        let serve = move |mut fake: Fake| {
            fake.send(line);
            while fake.receive().0 != "end" {}
        };
        let (kind, qmp) = failure(LONG, serve).await;
        assert_eq!(kind, ErrorKind::Protocol, "{line}");
        qmp.closed().await;
    }
    let nested = "[".repeat(100_000);
    let (kind, _) = failure(LONG, move |mut fake| fake.send(&nested)).await;
    assert_eq!(kind, ErrorKind::Protocol);
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let serve = |mut fake: Fake| while fake.peer.write_all(&[b'['; 4096]).is_ok() {};
    let (kind, _) = failure(LONG, serve).await;
    assert_eq!(kind, ErrorKind::Protocol);
}

#[tokio::test]
async fn a_long_answer_in_parts_is_received() {
    let serve = |mut fake: Fake| {
        let (_, id, _) = fake.receive();
        let line = format!(r#"{{"return": "{}", "id": {id}}}"#, "x".repeat(line::LINE_MAX - 100));
        for part in line.as_bytes().chunks(10_007) {
            fake.peer.write_all(part).expect("write");
        }
        fake.send("");
    };
    let qmp = connect(LONG, serve).await.expect("connected");
    let answer = qmp.execute("query-qmp-schema", json!({}), &[]).await.expect("answer");
    assert_eq!(answer.as_str().map(str::len), Some(line::LINE_MAX - 100));
}

#[tokio::test]
async fn a_closed_connection_fails_all_pending_commands() {
    let serve = |mut fake: Fake| {
        let (_, id, _) = fake.receive();
        fake.receive();
        fake.peer.write_all(format!(r#"{{"return": {{"id": {id}"#).as_bytes()).expect("write");
    };
    let qmp = connect(LONG, serve).await.expect("connected");
    let (a, b) = tokio::join!(qmp.execute("a", json!({}), &[]), qmp.execute("b", json!({}), &[]));
    assert_eq!([a, b].map(|outcome| outcome.expect_err("closed").kind), [ErrorKind::Gone, ErrorKind::Gone]);
    assert!(qmp.shared.pending().is_empty());
}

#[tokio::test]
async fn a_closed_connection_ends_for_all_who_hold_it() {
    let (sender, ended) = std::sync::mpsc::channel();
    let serve = move |mut fake: Fake| {
        fake.receive();
        let end = fake.peer.read(&mut [0]);
        sender.send(end.expect("read")).expect("send");
        // Held open: the end must not depend on QEMU.
        std::thread::sleep(LONG);
    };
    let qmp = Arc::new(connect(LONG, serve).await.expect("connected"));
    let pending = tokio::spawn({
        let qmp = Arc::clone(&qmp);
        async move { qmp.execute("a", json!({}), &[]).await }
    });
    while qmp.shared.pending().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(TIMEOUT).await;
    qmp.close();
    let error = pending.await.expect("a task").expect_err("closed");
    assert_eq!((error.kind, qmp.is_closed()), (ErrorKind::Gone, true));
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok(0), "QEMU sees the end of the connection");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_waited_for() {
    let serve = |fake: Fake| {
        std::thread::sleep(Duration::from_secs(3));
        drop(fake);
    };
    let qmp = connect(TIMEOUT, serve).await.expect("connected");
    let argument = "x".repeat(1 << 20);
    for _ in 0..2 {
        let error = qmp.execute("a", json!({ "a": argument }), &[]).await.expect_err("timeout");
        assert_eq!(error.kind, ErrorKind::Timeout);
    }
    assert!(qmp.shared.pending().is_empty());
}

#[tokio::test]
async fn connecting_distinguishes_absent_busy_and_replaced_sockets() {
    let directory = tempfile::tempdir().expect("directory");
    let long = directory.path().join("x".repeat(150));
    std::fs::create_dir(&long).expect("directory");
    let path = long.join("qmp");
    let connect = || Qmp::connect(&path, TIMEOUT);
    assert_eq!(connect().await.expect_err("absent").kind, ErrorKind::Gone);
    let listening = directory.path().join("qmp");
    let listener = UnixListener::bind(&listening).expect("bind");
    std::os::unix::fs::symlink(&listening, &path).expect("symlink");
    assert_eq!(connect().await.expect_err("symbolic link").kind, ErrorKind::Gone);
    std::fs::rename(&listening, &path).expect("rename");
    assert_eq!(connect().await.expect_err("no greeting").kind, ErrorKind::Timeout);
    drop(listener);
    assert_eq!(connect().await.expect_err("refused").kind, ErrorKind::Gone);
}
