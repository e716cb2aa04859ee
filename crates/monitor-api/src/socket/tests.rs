use std::{fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::{Attachments, Envelope, Reply};

#[test]
fn daemon_and_monitor_connect_on_a_private_socket_in_a_directory_of_any_length() {
    let root = tempfile::tempdir().expect("tempdir");
    let state = root.path().join("a".repeat(120));
    assert!(matches!(connect(&state), Err(SocketError::Absent(_))), "the directory does not exist yet");
    fs::create_dir(&state).expect("mkdir");
    assert!(matches!(connect(&state), Err(SocketError::Absent(_))), "the socket does not exist yet");

    let listener = bind(&state).expect("bind");
    let mode = fs::metadata(socket_path(&state)).expect("socket exists").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(accept(&listener).expect("accept").is_none());

    let daemon = connect(&state).expect("connect");
    let monitor = accept(&listener).expect("accept").expect("a pending connection");
    monitor.send(Envelope::Reply { seq: 1, body: Ok(Reply::Done), roles: vec![] }, &Attachments::new()).expect("send");
    assert!(matches!(daemon.receive(), Ok((Envelope::Reply { seq: 1, .. }, _))));

    drop(listener);
    assert!(matches!(connect(&state), Err(SocketError::Absent(_))), "the listener is closed");
    let _again = bind(&state).expect("bind over the leftover socket");
    connect(&state).expect("connect to the new socket");
    assert_eq!(fs::read_dir(&state).expect("list").count(), 1, "only the socket is left");

    fs::write(state.join("monitor.sock.17"), "").expect("create a leftover of a process that died in bind");
    sweep(&state).expect("sweep");
    assert_eq!(fs::read_dir(&state).expect("list").count(), 1, "only the socket is left");
    connect(&state).expect("the socket still exists");
}
