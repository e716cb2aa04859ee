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

/// A listener to which a runtime sends descriptors: what `--console-socket` names.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    path: PathBuf,
}

/// What came over a socket at once.
type Message = (Vec<u8>, Vec<OwnedFd>);

impl Console {
    /// A listener in the case's directory.
    pub fn listen(case: &Case) -> Self {
        let path = case.directory().join("console");
        let listener = UnixListener::bind(&path).expect("a socket in the case's directory");
        Self { listener, path }
    }

    /// The path to name.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("a directory of ASCII")
    }

    /// The master of the terminal that was sent.
    #[track_caller]
    pub fn master(&self) -> File {
        let (_, mut descriptors) = receive(&accept(&self.listener));
        assert_eq!(descriptors.len(), 1, "exactly the terminal is sent");
        let master = descriptors.remove(0);
        assert!(rustix::termios::isatty(&master), "what was sent is a terminal");
        rustix::pty::ptsname(&master, Vec::new()).expect("what was sent is a master");
        master.into()
    }
}

/// A seccomp agent: what `linux.seccomp.listenerPath` names.
#[derive(Debug)]
pub struct Agent(Console);

impl Agent {
    /// A listener in the case's directory.
    pub fn listen(case: &Case) -> Self {
        Self(Console::listen(case))
    }

    /// The path to name.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// The container process state and the descriptors that came with it, for whoever is sent.
    #[track_caller]
    pub fn receive(&self) -> (serde_json::Value, Vec<OwnedFd>) {
        let stream = accept(&self.0.listener);
        let (mut text, descriptors) = receive(&stream);
        // The rest, if it came in parts: who sends closes.
        (&stream).read_to_end(&mut text).expect("the state is readable");
        let text = String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned();
        (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")), descriptors)
    }
}

#[track_caller]
fn accept(listener: &UnixListener) -> UnixStream {
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&Timespec { tv_sec: 40, tv_nsec: 0 }));
    assert_eq!(ready, Ok(1), "the runtime connects");
    listener.accept().expect("a connection").0
}

#[track_caller]
fn receive(stream: &UnixStream) -> Message {
    let mut text = vec![0; 1 << 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    text.truncate(received.expect("a message").bytes);
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    (text, descriptors)
}
