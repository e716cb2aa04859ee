//! Terminals that are sent to a console socket or relayed.

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

pub(crate) const CASES: &[super::Case] =
    testbed::cases!(sent_to_a_console_socket, relayed, errors_without_a_console_socket);

fn with_terminal(args: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(args);
    bundle.spec["process"]["terminal"] = json!(true);
    bundle.spec["process"]["consoleSize"] = json!({"height": 17, "width": 71});
    bundle.write();
    bundle
}

/// Receives the descriptor and the name that is sent with it.
fn receive(listener: &UnixListener) -> (OwnedFd, String) {
    let (stream, _) = listener.accept().expect("accept a connection");
    let mut name = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&stream, &mut [IoSliceMut::new(&mut name)], &mut ancillary, RecvFlags::empty()).expect("recvmsg");
    let terminal = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    (
        terminal.expect("the message contains no descriptor"),
        String::from_utf8_lossy(&name[..received.bytes]).into_owned(),
    )
}

/// Reads until the slave side is closed.
fn read_all(terminal: OwnedFd) -> String {
    let mut output = Vec::new();
    // The read returns EIO after the last close of the slave.
    let _ = File::from(terminal).read_to_end(&mut output);
    String::from_utf8_lossy(&output).into_owned()
}

fn sent_to_a_console_socket() {
    let bundle = with_terminal(&["sh", "-c", "stty size; readlink /proc/self/fd/0"]);
    let listener = UnixListener::bind(bundle.path("console")).expect("bind a socket");
    bundle.pinrun(&["create", "--console-socket", "console", ID]).ok();
    let (terminal, name) = receive(&listener);
    assert!(name.contains("ptmx"), "{name}");
    bundle.pinrun(&["start", ID]).ok();
    assert_eq!(read_all(terminal), "17 71\r\n/dev/pts/0\r\n");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
}

fn relayed() {
    let bundle = with_terminal(&["sh", "-c", "stty size; read line; echo got $line; exit 3"]);
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("open a terminal");
    grantpt(&master).expect("grantpt");
    unlockpt(&master).expect("unlockpt");
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("open the slave side");
    tcsetwinsize(&slave, Winsize { ws_row: 33, ws_col: 99, ws_xpixel: 0, ws_ypixel: 0 }).expect("set the window size");
    let duplicate = || slave.as_fd().try_clone_to_owned().expect("duplicate the descriptor");
    let mut command = bundle.command(&["run", ID]);
    let mut child = command.stdin(duplicate()).stdout(duplicate()).stderr(duplicate()).spawn().expect("spawn pinrun");
    drop(command);
    let mut file = File::from(master.try_clone().expect("duplicate the descriptor"));
    let mut output = String::new();
    let mut buffer = [0; 256];
    while !output.contains('\n') {
        let count = file.read(&mut buffer).expect("read the output");
        output.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert_eq!(output.trim(), "33 99");
    let echoes = || tcgetattr(&slave).expect("tcgetattr").local_modes.contains(LocalModes::ECHO);
    assert!(!echoes(), "the terminal must be raw while the container runs");
    file.write_all(b"hello\r").expect("write to the terminal");
    assert_eq!(child.wait().expect("wait").code(), Some(3));
    assert!(echoes(), "the terminal modes must be restored");
    drop(slave);
    let rest = read_all(master);
    assert!(rest.contains("got hello"), "{rest:?}");
    bundle.assert_removed();
}

fn errors_without_a_console_socket() {
    let bundle = with_terminal(&["true"]);
    bundle.pinrun(&["create", ID]).failed("console socket");
    bundle.pinrun(&["run", "-d", ID]).failed("console socket");
    bundle.assert_removed();
    let bundle = Bundle::new(&["true"]);
    let _listener = UnixListener::bind(bundle.path("console")).expect("bind a socket");
    bundle.pinrun(&["create", "--console-socket", "console", ID]).failed("console socket");
    bundle.assert_removed();
}
