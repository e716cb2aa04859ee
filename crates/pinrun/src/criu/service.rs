//! CRIU as a child.

use std::{
    ffi::{CString, OsStr, OsString},
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{Access, access},
    io::{Errno, FdFlags, fcntl_setfd},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
        SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
    },
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};
use syscall::{
    clone::{Child, Clone3},
    exec::{StringArray, execve},
};

use super::request::{Answer, Kind, acknowledgement};
use crate::failure::Failure;

/// Longest answer; those of today have some hundred bytes.
const ANSWER_MAX: usize = 64 << 10;
/// What the child says when it is about to become CRIU; anything else is why it is not.
const READY: &[u8] = b"ready";

/// A CRIU that waits for its request.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    socket: OwnedFd,
}

/// What the child does before it becomes CRIU.
pub(crate) struct Preparation<'a> {
    /// The group to be born in (v2).
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Whether it waits for [`Service::go`] first.
    pub(crate) waits: bool,
    /// Descriptors that CRIU gets under their numbers.
    pub(crate) inherited: &'a [OwnedFd],
    pub(crate) work: &'a dyn Fn() -> Result<(), Failure>,
}

impl Service {
    pub(crate) fn start(preparation: &Preparation<'_>) -> Result<Self, Failure> {
        let failed = |error| Failure::io("start criu", error);
        let program = find()?;
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, childs) = pair.map_err(|errno| failed(errno.into()))?;
        let child = Clone3 { namespaces: None, cgroup: preparation.cgroup }.fork(|| {
            let told = match become_criu(preparation, &program, childs.as_fd()) {
                Ok(never) => match never {},
                Err(failure) => send(&childs, failure.message.as_bytes(), SendFlags::NOSIGNAL),
            };
            i32::from(told.is_err()) + 1
        });
        Ok(Self { child: child.map_err(failed)?, socket: ours })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.pid
    }

    /// For a preparation that waits.
    pub(crate) fn go(&self) {
        // One that is gone says why in what is read next.
        let _ = send(&self.socket, READY, SendFlags::NOSIGNAL);
    }

    /// Until the child is where CRIU is to work.
    pub(crate) fn prepared(&self) -> Result<(), Failure> {
        let mut said = vec![0; 4096];
        match recv(&self.socket, &mut said[..], RecvFlags::empty()) {
            Ok((length, _)) if &said[..length] == READY => Ok(()),
            Ok((length, _)) if length > 0 => Err(Failure::new(String::from_utf8_lossy(&said[..length]))),
            Ok(_) => Err(Failure::new("start criu: the child ended")),
            Err(errno) => Err(Failure::io("start criu", errno)),
        }
    }

    /// Asks, and answers what CRIU asks meanwhile: `notice` is called with each notification, and with the descriptor
    /// that came with it.
    pub(crate) fn ask(
        self,
        kind: Kind,
        request: &[u8],
        mut notice: impl FnMut(&Answer, Option<OwnedFd>) -> Result<(), Failure>,
    ) -> Result<Answer, Failure> {
        self.say(request)?;
        loop {
            let (answer, descriptor) = self.listen()?;
            let answer = answer.check()?;
            if answer.kind == kind as i32 {
                return self.end(kind).map(|()| answer);
            }
            if answer.kind != Kind::Notify as i32 {
                return Err(Failure::new(format!("criu: answers with a message of kind {}", answer.kind)));
            }
            notice(&answer, descriptor)?;
            self.say(&acknowledgement())?;
        }
    }

    fn say(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut nothing = SendAncillaryBuffer::default();
        match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut nothing, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(silent()),
            Err(errno) => Err(Failure::io("ask criu", errno)),
        }
    }

    fn listen(&self) -> Result<(Answer, Option<OwnedFd>), Failure> {
        let mut bytes = vec![0; ANSWER_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut buffer = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(silent()),
                result => break result.map_err(|errno| Failure::io("listen to criu", errno))?,
            }
        };
        if received.bytes == 0 {
            return Err(silent());
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let answer = Answer::parse(&bytes[..received.bytes]);
        // It says why it could not be executed in words.
        let words = || Failure::new(String::from_utf8_lossy(&bytes[..received.bytes]));
        Ok((answer.ok_or_else(words)?, descriptor))
    }

    /// CRIU's own end. After a pre-dump it would wait for the next request, and ends by itself when nobody is there.
    fn end(&self, kind: Kind) -> Result<(), Failure> {
        if kind == Kind::PreDump {
            return Ok(());
        }
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)
            .map_err(|errno| Failure::io("end the conversation with criu", errno))?;
        match waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) if status.exit_status() != Some(0) => {
                Err(Failure::new(format!("criu ended with {:?}", status.exit_status().unwrap_or(-1))))
            }
            Ok(_) | Err(Errno::CHILD) => Ok(()),
            Err(errno) => Err(Failure::io("wait for criu", errno)),
        }
    }
}

impl Drop for Service {
    /// Whatever went wrong: nothing of CRIU stays.
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

fn silent() -> Failure {
    Failure::new("criu ended without an answer; `criu check` tells what it misses on this machine")
}

fn become_criu(
    preparation: &Preparation<'_>,
    program: &CString,
    socket: BorrowedFd<'_>,
) -> Result<std::convert::Infallible, Failure> {
    let failed = |error: std::io::Error| Failure::io("start criu", error);
    if preparation.waits {
        recv(socket, &mut [0; 16][..], RecvFlags::empty()).map_err(|errno| failed(errno.into()))?;
    }
    (preparation.work)()?;
    for descriptor in preparation.inherited.iter().map(AsFd::as_fd).chain([socket]) {
        fcntl_setfd(descriptor, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    }
    let number = CString::new(socket.as_raw_fd().to_string()).unwrap_or_default();
    let arguments = StringArray::new(vec![c"criu".to_owned(), c"swrk".to_owned(), number]);
    let environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    let environment = StringArray::new(environment.filter_map(|variable| CString::new(variable).ok()).collect());
    send(socket, READY, SendFlags::NOSIGNAL).map_err(|errno| failed(errno.into()))?;
    Err(failed(execve(program, &arguments, &environment)))
}

/// criu(8) in `$PATH`, and where a service's path does not lead.
fn find() -> Result<CString, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(OsString::from);
    let directories = std::env::split_paths(&path).chain(more.into_iter().map(PathBuf::from));
    let mut programs = directories.filter(|directory| directory.is_absolute()).map(|directory| directory.join("criu"));
    let found = programs.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok());
    let found =
        found.ok_or_else(|| Failure::new("criu: executable file not found in $PATH; install the package criu"))?;
    CString::new(OsStr::as_bytes(found.as_os_str())).map_err(|_| Failure::new("criu: its path has a NUL byte"))
}
