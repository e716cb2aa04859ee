use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use crate::{
    Error, ErrorKind,
    error::During,
    sync::{self, Said},
};

/// How long the container's process may leave the request to start unread before the cause is looked for.
const ACCEPT_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Starts a container that waits on its listening socket ([`Invocation::starter`](crate::Invocation)): `socket` is a
/// connection to it. Returns when `execve` succeeded, or says why it did not.
///
/// `may_start` is called again and again while the container's process does not read the request (it may be frozen):
/// with an error from it the request is withdrawn, and the container still waits.
///
/// # Errors
/// A start hook or `execve` failed; the container's process is gone. Or that of `may_start`.
pub fn start_waiting(socket: OwnedFd, may_start: impl Fn() -> Result<(), String>) -> Result<(), Error> {
    sync::start(socket.as_fd()).during(|| "tell the container to start")?;
    let mut is_read = false;
    loop {
        match sync::listen(socket.as_fd())? {
            Said::Nothing if is_read => wait(&socket)?,
            Said::Nothing if wait_for(&socket, &ACCEPT_TIME)? => {}
            Said::Nothing if sync::is_read(socket.as_fd())? => is_read = true,
            // The connection ends with the error, and a process that reads the request then does not start.
            Said::Nothing => may_start().map_err(|message| Error { kind: ErrorKind::System, message })?,
            Said::End => return Ok(()),
            Said::Failed(error) => return Err(error),
            Said::NamespacesMade | Said::Ready(_) | Said::Unmapped | Said::Born(..) | Said::Made(_) => {
                let message = "the container's child spoke out of turn".to_owned();
                return Err(Error { kind: ErrorKind::System, message });
            }
        }
    }
}

/// Whether there is something to read within that time.
fn wait_for(socket: &OwnedFd, time: &Timespec) -> Result<bool, Error> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(Error::system("wait for the container to start", errno)),
    }
}

pub(crate) fn wait(socket: &OwnedFd) -> Result<(), Error> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for the container to start", errno)),
    }
}
