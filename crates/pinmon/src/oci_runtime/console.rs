//! The terminal of a container, which its runtime sends over a Unix socket (`--console-socket` of runc).

use std::io::{self, IoSliceMut};

use rustix::{
    fd::{AsFd, OwnedFd},
    io::ioctl_fionbio,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg},
};

/// Maximum number of bytes of the message, which is the path of the terminal.
const MESSAGE_MAX: usize = 4096;

/// Receives the master side of a terminal that a runtime, which has exited, sent to this listening socket. `wrap` takes
/// whatever was sent, because its last close may block.
pub(crate) fn receive_terminal<T: AsFd>(socket: &OwnedFd, wrap: impl Fn(OwnedFd) -> T) -> io::Result<T> {
    ioctl_fionbio(socket, true)?;
    let connection = accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        .map_err(|_| io::Error::other("the runtime has not connected to the socket"))?;
    let mut message = [0; MESSAGE_MAX];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(&connection, &mut [IoSliceMut::new(&mut message)], &mut control, flags)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let master = descriptors.flatten().map(wrap).next();
    let master = master.ok_or_else(|| io::Error::other("the runtime has sent no descriptor"))?;
    // Only a master has a number.
    match rustix::pty::ptsname(&master, Vec::new()) {
        Ok(_) => {
            ioctl_fionbio(&master, true)?;
            Ok(master)
        }
        Err(_) => Err(io::Error::other("the runtime has sent a descriptor that is not the master of a terminal")),
    }
}
