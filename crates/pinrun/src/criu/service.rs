//! CRIU as a child process.

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
    process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};
use syscall::{
    clone::{Child, Clone3},
    exec::{StringArray, execve},
};

use super::request::{Kind, Response, acknowledgement};
use crate::failure::Failure;

/// Longest response in bytes; current ones have some hundred bytes.
const RESPONSE_MAX: usize = 64 << 10;
/// Sent by the child before it executes CRIU; any other message is an error text.
const READY: &[u8] = b"ready";

/// A CRIU process that waits for a request.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    socket: OwnedFd,
}

/// What the child does before it executes CRIU.
pub(crate) struct Preparation<'a> {
    /// The v2 cgroup into which it is cloned.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Whether it waits for [`Service::release`] first.
    pub(crate) waits: bool,
    /// Descriptors that CRIU inherits under their numbers.
    pub(crate) inherited: &'a [OwnedFd],
    /// Runs in the child before CRIU is executed.
    pub(crate) work: &'a dyn Fn() -> Result<(), Failure>,
}

impl Service {
    pub(crate) fn start(preparation: &Preparation<'_>) -> Result<Self, Failure> {
        let failed = |error| Failure::io("start criu", error);
        let program = find_criu()?;
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (socket, child_socket) = pair.map_err(|errno| failed(errno.into()))?;
        let child = Clone3 { namespaces: None, cgroup: preparation.cgroup }.fork(|| {
            let sent = match execute(preparation, &program, child_socket.as_fd()) {
                Ok(never) => match never {},
                Err(failure) => send(&child_socket, failure.message.as_bytes(), SendFlags::NOSIGNAL),
            };
            i32::from(sent.is_err()) + 1
        });
        Ok(Self { child: child.map_err(failed)?, socket })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Lets a child continue that waits (see [`Preparation::waits`]).
    pub(crate) fn release(&self) {
        // If the child has exited, the next read returns its error.
        let _ = send(&self.socket, READY, SendFlags::NOSIGNAL);
    }

    /// Waits until the child has run its preparation.
    pub(crate) fn wait_until_ready(&self) -> Result<(), Failure> {
        let mut message = vec![0; 4096];
        match recv(&self.socket, &mut message[..], RecvFlags::empty()) {
            Ok((length, _)) if &message[..length] == READY => Ok(()),
            Ok((length, _)) if length > 0 => Err(Failure::new(String::from_utf8_lossy(&message[..length]))),
            Ok(_) => Err(Failure::new("start criu: the child exited")),
            Err(errno) => Err(Failure::io("start criu", errno)),
        }
    }

    /// Sends a request and returns the response. Calls `on_notification` for each notification that CRIU sends in the
    /// meantime, with the descriptor that came with it, and acknowledges it.
    pub(crate) fn request(
        self,
        kind: Kind,
        request: &[u8],
        mut on_notification: impl FnMut(&Response, Option<OwnedFd>) -> Result<(), Failure>,
    ) -> Result<Response, Failure> {
        self.send(request)?;
        loop {
            let (response, descriptor) = self.receive()?;
            let response = response.check()?;
            if response.kind == kind as i32 {
                return self.finish(kind).map(|()| response);
            }
            if response.kind != Kind::Notify as i32 {
                return Err(Failure::new(format!("criu: unexpected response of type {}", response.kind)));
            }
            on_notification(&response, descriptor)?;
            self.send(&acknowledgement())?;
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut nothing = SendAncillaryBuffer::default();
        match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut nothing, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(no_response()),
            Err(errno) => Err(Failure::io("send a request to criu", errno)),
        }
    }

    fn receive(&self) -> Result<(Response, Option<OwnedFd>), Failure> {
        let mut bytes = vec![0; RESPONSE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut buffer = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(no_response()),
                result => break result.map_err(|errno| Failure::io("receive a response of criu", errno))?,
            }
        };
        if received.bytes == 0 {
            return Err(no_response());
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let response = Response::parse(&bytes[..received.bytes]);
        // The child sends plain text if it could not execute CRIU.
        let error_text = || Failure::new(String::from_utf8_lossy(&bytes[..received.bytes]));
        Ok((response.ok_or_else(error_text)?, descriptor))
    }

    /// Waits for CRIU to exit. After a pre-dump it would wait for another request; it exits when the socket is closed.
    fn finish(&self, kind: Kind) -> Result<(), Failure> {
        if kind == Kind::PreDump {
            return Ok(());
        }
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)
            .map_err(|errno| Failure::io("shut down the socket of criu", errno))?;
        match waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) if status.exit_status() != Some(0) => {
                Err(Failure::new(format!("criu exited with code {:?}", status.exit_status().unwrap_or(-1))))
            }
            Ok(_) | Err(Errno::CHILD) => Ok(()),
            Err(errno) => Err(Failure::io("wait for criu", errno)),
        }
    }
}

impl Drop for Service {
    /// Kills and reaps CRIU if it is still running.
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

fn no_response() -> Failure {
    Failure::new("criu exited without a response; run `criu check` to see what it lacks on this machine")
}

fn execute(
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

/// Finds criu(8) in `$PATH` and in directories that the PATH of a service often lacks.
fn find_criu() -> Result<CString, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(OsString::from);
    let directories = std::env::split_paths(&path).chain(more.into_iter().map(PathBuf::from));
    let mut programs = directories.filter(|directory| directory.is_absolute()).map(|directory| directory.join("criu"));
    let program = programs.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok());
    let program =
        program.ok_or_else(|| Failure::new("criu: executable file not found in $PATH; install the package criu"))?;
    CString::new(OsStr::as_bytes(program.as_os_str())).map_err(|_| Failure::new("criu: its path contains a NUL byte"))
}
