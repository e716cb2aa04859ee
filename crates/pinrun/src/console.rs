//! `--console-socket`: sends the master side of the terminal to the caller.

use std::{
    ffi::{OsStr, OsString},
    io::IoSlice,
    mem::MaybeUninit,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat, readlinkat},
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        connect, sendmsg, socket_with,
    },
};

use crate::failure::Failure;

/// A connection to the console socket. It is made before anything else, so that a wrong path has no side effects.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    socket: OwnedFd,
    path: OsString,
}

impl ConsoleSocket {
    pub(crate) fn connect(path: &OsStr) -> Result<Self, Failure> {
        let failed = |errno| Failure::io(format!("connect to the console socket {path:?}"), errno);
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
        let address = SocketAddrUnix::new(path).or_else(|_| {
            // The path is longer than sun_path: connect through a descriptor.
            let node = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let short = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&node));
            let address = SocketAddrUnix::new(short);
            std::mem::forget(node);
            address
        });
        connect(&socket, &address.map_err(failed)?).map_err(failed)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// Sends a descriptor with its path as the message, as runc does.
    pub(crate) fn send(&self, terminal: BorrowedFd<'_>) -> Result<(), Failure> {
        let failed = |errno| Failure::io(format!("send the terminal to the console socket {:?}", self.path), errno);
        let link = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&terminal));
        let name = readlinkat(CWD, link, Vec::new()).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [terminal.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.socket, &[IoSlice::new(name.to_bytes())], &mut ancillary, SendFlags::NOSIGNAL).map_err(failed)?;
        Ok(())
    }
}
