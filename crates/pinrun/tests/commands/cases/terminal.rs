//! Terminals: handed over, and relayed.

use std::{
    fs::File,
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::unix::net::UnixListener,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::json;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = crate::cases!(handed_over, relayed, without_a_socket);

fn with_terminal(args: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(args);
    bundle.spec["process"]["terminal"] = json!(true);
    bundle.spec["process"]["consoleSize"] = json!({"height": 17, "width": 71});
    bundle.write();
    bundle
}

/// The descriptor and the name that came with it.
fn receive(listener: &UnixListener) -> (OwnedFd, String) {
    let (stream, _) = listener.accept().expect("a connection");
    let mut name = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&stream, &mut [IoSliceMut::new(&mut name)], &mut ancillary, RecvFlags::empty()).expect("recvmsg");
    let terminal = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    (terminal.expect("a descriptor"), String::from_utf8_lossy(&name[..got.bytes]).into_owned())
}

/// Until the other side is closed.
fn read_all(terminal: OwnedFd) -> String {
    let mut said = Vec::new();
    // EIO is the end.
    let _ = File::from(terminal).read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

fn handed_over() {
    let bundle = with_terminal(&["sh", "-c", "stty size; readlink /proc/self/fd/0"]);
    let listener = UnixListener::bind(bundle.path("console")).expect("a socket");
    bundle.pinrun(&["create", "--console-socket", "console", ID]).ok();
    let (terminal, name) = receive(&listener);
    assert!(name.contains("ptmx"), "{name}");
    bundle.pinrun(&["start", ID]).ok();
    assert_eq!(read_all(terminal), "17 71\r\n/dev/pts/0\r\n");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
}

fn relayed() {
    let bundle = with_terminal(&["sh", "-c", "stty size; read line; echo got $line; exit 3"]);
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("grantpt");
    unlockpt(&master).expect("unlockpt");
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other side");
    tcsetwinsize(&slave, Winsize { ws_row: 33, ws_col: 99, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let ours = || slave.as_fd().try_clone_to_owned().expect("a duplicate");
    let mut command = bundle.command(&["run", ID]);
    let mut child = command.stdin(ours()).stdout(ours()).stderr(ours()).spawn().expect("pinrun");
    drop(command);
    let mut file = File::from(master.try_clone().expect("a duplicate"));
    let mut said = String::new();
    let mut buffer = [0; 256];
    while !said.contains('\n') {
        let count = file.read(&mut buffer).expect("output");
        said.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert_eq!(said.trim(), "33 99");
    assert!(!tcgetattr(&slave).expect("modes").local_modes.contains(LocalModes::ECHO), "it is raw meanwhile");
    file.write_all(b"hello\r").expect("typed");
    assert_eq!(child.wait().expect("wait").code(), Some(3));
    assert!(tcgetattr(&slave).expect("modes").local_modes.contains(LocalModes::ECHO), "it is as it was");
    drop(slave);
    let rest = read_all(master);
    assert!(rest.contains("got hello"), "{rest:?}");
    bundle.is_gone();
}

fn without_a_socket() {
    let bundle = with_terminal(&["true"]);
    bundle.pinrun(&["create", ID]).failed("console socket");
    bundle.pinrun(&["run", "-d", ID]).failed("console socket");
    bundle.is_gone();
    let bundle = Bundle::new(&["true"]);
    let _listener = UnixListener::bind(bundle.path("console")).expect("a socket");
    bundle.pinrun(&["create", "--console-socket", "console", ID]).failed("console socket");
    bundle.is_gone();
}
