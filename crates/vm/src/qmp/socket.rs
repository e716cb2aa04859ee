use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use tokio::{io::Interest, net::UnixStream};

/// Most descriptors of a message. The kernel's limit is 253 (`SCM_MAX_FD`), that of QEMU is 16.
pub(super) const DESCRIPTORS_MAX: usize = 16;
/// Pause until a socket with a full backlog is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// A command to send, and the descriptors that it passes.
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Connects to a socket. Follows no symbolic link at the end of the path: QEMU can replace its socket. The path can be
/// longer than an address, see unix(7).
///
/// # Errors
/// Those of openat(2) and connect(2).
pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("it is not a socket"));
    }
    let magic_link = format!("/proc/self/fd/{}", socket.as_raw_fd());
    loop {
        match UnixStream::connect(&magic_link).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Sends a command. Cancelling it can leave a part of it sent.
///
/// # Errors
/// Those of sendmsg(2).
pub(super) async fn send(socket: &UnixStream, line: Line) -> io::Result<()> {
    let mut sent = 0;
    let mut descriptors = line.descriptors;
    while sent < line.bytes.len() {
        let part = &line.bytes[sent..];
        sent += socket.async_io(Interest::WRITABLE, || send_part(socket, part, &descriptors)).await?;
        // They travel with the first byte.
        descriptors.clear();
    }
    Ok(())
}

fn send_part(socket: &UnixStream, part: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("too many descriptors for one command"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(part)], &mut control, flags)?)
}
