use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use crate::{
    Error, ErrorKind,
    error::During,
    sync::{self, ChildMessage},
};

/// How long the container's process may leave the start request unread before `may_start` is consulted.
const ACCEPT_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Starts a created container that waits on its listening socket ([`Invocation::start_listener`](crate::Invocation));
/// `socket` is a connection to that. Returns once `execve` has succeeded.
///
/// `may_start` is called repeatedly while the container's process does not read the request, because it may be frozen.
/// If `may_start` fails, the request is withdrawn and the container keeps waiting.
///
/// # Errors
/// A startContainer hook or `execve` failed, and the container's process has exited; or `may_start` failed.
pub fn start_created(socket: OwnedFd, may_start: impl Fn() -> Result<(), String>) -> Result<(), Error> {
    sync::send_start(socket.as_fd()).during(|| "send the start request to the container")?;
    let mut is_read = false;
    loop {
        match sync::receive(socket.as_fd())? {
            ChildMessage::Pending if is_read => wait(&socket)?,
            ChildMessage::Pending if wait_for(&socket, &ACCEPT_TIMEOUT)? => {}
            ChildMessage::Pending if sync::is_read(socket.as_fd())? => is_read = true,
            // Returning the error closes the connection, and a process that reads the request later ignores it.
            ChildMessage::Pending => may_start().map_err(|message| Error::new(ErrorKind::System, message))?,
            ChildMessage::Closed => return Ok(()),
            ChildMessage::Failed(error) => return Err(error),
            ChildMessage::NamespacesCreated
            | ChildMessage::Ready(_)
            | ChildMessage::NeedsMaps
            | ChildMessage::Cloned(..)
            | ChildMessage::Namespaces(_) => {
                let message = "start the container: its process sent an unexpected message".to_owned();
                return Err(Error::new(ErrorKind::System, message));
            }
        }
    }
}

/// Waits until the socket is readable; `false`: the timeout expired.
fn wait_for(socket: &OwnedFd, timeout: &Timespec) -> Result<bool, Error> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(Error::system("wait for the container to start", errno)),
    }
}

/// Waits until the socket is readable, or a signal arrives.
pub(crate) fn wait(socket: &OwnedFd) -> Result<(), Error> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for the container to start", errno)),
    }
}
