use std::{
    fs::File,
    io::{IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::Case;

/// A socket to which a runtime sends a terminal: the argument of `--console-socket`.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    path: PathBuf,
}

/// Bytes and descriptors that were received with one recvmsg(2).
type Message = (Vec<u8>, Vec<OwnedFd>);

impl Console {
    /// Listens in the directory of the case.
    pub fn listen(case: &Case) -> Self {
        let path = case.directory().join("console");
        let listener = UnixListener::bind(&path).expect("bind a socket in the directory of the case");
        Self { listener, path }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("the path is ASCII")
    }

    /// Receives the master of the terminal.
    #[track_caller]
    pub fn master(&self) -> File {
        let (_, mut descriptors) = receive(&accept(&self.listener));
        assert_eq!(descriptors.len(), 1, "only the terminal must be sent");
        let master = descriptors.remove(0);
        assert!(rustix::termios::isatty(&master), "the descriptor must be a terminal");
        rustix::pty::ptsname(&master, Vec::new()).expect("the descriptor is a pty master");
        master.into()
    }
}

/// The socket of a seccomp agent: the value of `linux.seccomp.listenerPath`.
#[derive(Debug)]
pub struct Agent(Console);

impl Agent {
    /// Listens in the directory of the case.
    pub fn listen(case: &Case) -> Self {
        Self(Console::listen(case))
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// Receives the container process state and the descriptors that are sent with it.
    #[track_caller]
    pub fn receive(&self) -> (serde_json::Value, Vec<OwnedFd>) {
        let stream = accept(&self.0.listener);
        let (mut text, descriptors) = receive(&stream);
        // The state may arrive in parts; the runtime closes the connection after the last one.
        (&stream).read_to_end(&mut text).expect("read the state");
        let text = String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned();
        (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")), descriptors)
    }
}

#[track_caller]
fn accept(listener: &UnixListener) -> UnixStream {
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&Timespec { tv_sec: 40, tv_nsec: 0 }));
    assert_eq!(ready, Ok(1), "the runtime did not connect within 40 s");
    listener.accept().expect("accept the connection").0
}

#[track_caller]
fn receive(stream: &UnixStream) -> Message {
    let mut text = vec![0; 1 << 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    text.truncate(received.expect("receive a message").bytes);
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    (text, descriptors)
}
