use std::collections::BTreeMap;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::{Create, Created, Event, ExecStarted, ExitStatus, LogOptions, PodInitStarted, Reply, Request, Welcome};

fn pair() -> (Connection, Connection) {
    let (a, b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
            .expect("socketpair");
    (Connection::new(a), Connection::new(b))
}

fn request(body: Request) -> Envelope {
    Envelope::Request { seq: 7, body: Box::new(body), roles: Vec::new() }
}

fn null() -> OwnedFd {
    rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .expect("open /dev/null")
}

#[test]
fn descriptors_arrive_in_order_with_their_roles() {
    let (a, b) = pair();
    let attached =
        Attachments::new().with(Role::Rootfs, null()).with(Role::Mount(3), null()).with(Role::Stdout, null());
    a.send(request(Request::Inventory), &attached).expect("send");
    let (envelope, received) = b.receive().expect("receive");
    assert!(matches!(envelope, Envelope::Request { seq: 7, .. }));
    assert_eq!(received.roles(), [Role::Rootfs, Role::Mount(3), Role::Stdout]);
    for (_, fd) in received {
        let flags = rustix::io::fcntl_getfd(&fd).expect("F_GETFD");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "a received descriptor must not leak into a container");
    }
}

#[test]
fn a_long_frame_carries_the_maximum_number_of_descriptors() {
    let (a, b) = pair();
    let annotations = BTreeMap::from([("long".to_owned(), "x".repeat(INLINE_MAX))]);
    let spec = oci::Spec { annotations, ..oci::Spec::default() };
    let create = Create {
        container: "c".into(),
        sandbox: "s".into(),
        spec,
        log: LogOptions::default(),
        bundle: String::new(),
        mounts: None,
        runtime: None,
        external: false,
        interpreter: None,
    };
    let mut attached = Attachments::new();
    (0..FRAME_FDS_MAX).for_each(|n| attached.push(Role::Mount(n as u32), null()));
    a.send(request(Request::Create(Box::new(create))), &attached).expect("send");
    let (envelope, received) = b.receive().expect("receive");
    let Envelope::Request { body, .. } = envelope else { panic!("not a request") };
    let Request::Create(create) = *body else { panic!("not a create") };
    assert_eq!(create.spec.annotations["long"].len(), INLINE_MAX);
    assert_eq!(received.len(), FRAME_FDS_MAX);
    attached.push(Role::Stdin, null());
    assert!(matches!(a.send(request(Request::Inventory), &attached), Err(CodecError::Malformed(_))));
}

#[test]
fn an_empty_socket_would_block_and_a_closed_one_is_closed() {
    let (a, b) = pair();
    assert!(matches!(b.receive(), Err(CodecError::WouldBlock)));
    drop(a);
    assert!(matches!(b.receive(), Err(CodecError::Closed)));
    assert!(matches!(b.send(request(Request::Inventory), &Attachments::new()), Err(CodecError::Closed)));
}

#[test]
fn a_full_socket_would_block() {
    let (a, _b) = pair();
    let full = (0..10_000).find_map(|_| a.send(request(Request::Inventory), &Attachments::new()).err());
    assert!(matches!(full, Some(CodecError::WouldBlock)), "{full:?}");
}

#[test]
fn frames_that_violate_the_contract_are_malformed_and_the_connection_stays_usable() {
    let (a, b) = pair();
    let fd = null();
    let json = br#"{"reply":{"seq":1,"body":{"Ok":"done"},"roles":["stdin","stdout"]}}"#;
    let long = vec![b' '; INLINE_MAX + 2];
    let unsealed = rustix::fs::memfd_create(c"open", MemfdFlags::CLOEXEC).expect("memfd");
    let cases: [(&[u8], &[BorrowedFd<'_>], &str); 7] = [
        (json, &[fd.as_fd()], "2 roles for 1 descriptors"),
        (br#"{"event":{"exited":null}}"#, &[], "expected struct variant"),
        (b"not json", &[], "expected"),
        (&long, &[], "more than 65536 bytes"),
        (b"@", &[], "is missing"),
        (b"@", &[fd.as_fd()], "not a memfd"),
        (b"@", &[unsealed.as_fd()], "not sealed"),
    ];
    for (data, fds, expected) in cases {
        a.send_packet(data, fds).expect("send");
        match b.receive() {
            Err(CodecError::Malformed(why)) => assert!(why.contains(expected), "{why:?} does not contain {expected:?}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    a.send(Envelope::Reply { seq: 1, body: Ok(Reply::Done), roles: Vec::new() }, &Attachments::new()).expect("send");
    assert!(matches!(b.receive(), Ok((Envelope::Reply { seq: 1, body: Ok(Reply::Done), .. }, _))));
}

#[test]
fn an_event_carries_no_descriptors() {
    let (a, b) = pair();
    let status = ExitStatus { code: None, signal: None, oom_killed: false, at: 1 };
    let event = Event::Exited { container: "c".into(), status };
    let attached = Attachments::new().with(Role::Stdin, null());
    assert!(matches!(a.send(Envelope::Event(event.clone()), &attached), Err(CodecError::Malformed(_))));
    a.send(Envelope::Event(event.clone()), &Attachments::new()).expect("send");
    assert!(matches!(b.receive(), Ok((Envelope::Event(received), _)) if received == event));
}

#[test]
fn a_terminal_size_has_the_names_of_contract_1_0_in_any_order() {
    let size = oci::TerminalSize { width: 91, height: 17 };
    let body = Request::ResizeTerminal { target: crate::Target::Container("c".into()), size };
    let sent = serde_json::to_value(&body).expect("JSON");
    let expected =
        serde_json::json!({"resize_terminal": {"target": {"container": "c"}, "size": {"width": 91, "height": 17}}});
    assert_eq!(sent, expected);
    for text in [r#"{"width":91,"height":17}"#, r#"{"height":17,"width":91}"#] {
        assert_eq!(serde_json::from_str::<oci::TerminalSize>(text).expect("a size"), size);
    }
}

#[test]
fn the_name_of_a_reply_is_that_on_the_wire() {
    let (version, warnings) = (String::new(), Vec::new());
    let replies = [
        Reply::Done,
        Reply::Welcome(Welcome { major: 1, minor: 0, pid: 1, version }),
        Reply::Created(Created { pid: 1, start_time: 1, warnings: Vec::new() }),
        Reply::ExecStarted(ExecStarted { pid: 1, warnings }),
        Reply::PodInitStarted(PodInitStarted { pid: 1, start_time: 1 }),
        Reply::NamespacesMade,
    ];
    for reply in replies {
        let json = serde_json::to_value(&reply).expect("JSON");
        let name = json.as_str().or_else(|| json.as_object()?.keys().next().map(String::as_str));
        assert_eq!(name, Some(reply.name()));
    }
}
