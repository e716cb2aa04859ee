use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use crate::{
    Error, ErrorKind,
    error::During,
    sync::{self, Said},
};

/// Starts a container that waits on its listening socket ([`Invocation::starter`](crate::Invocation)): `socket` is a
/// connection to it. Returns when `execve` succeeded, or says why it did not.
///
/// # Errors
/// A start hook or `execve` failed; the container's process is gone.
pub fn start_waiting(socket: OwnedFd) -> Result<(), Error> {
    sync::start(socket.as_fd()).during(|| "tell the container to start")?;
    loop {
        match sync::listen(socket.as_fd())? {
            Said::Nothing => wait(&socket)?,
            Said::End => return Ok(()),
            Said::Failed(error) => return Err(error),
            Said::NamespacesMade | Said::Ready(_) | Said::Unmapped | Said::Born(..) | Said::Made(_) => {
                let message = "the container's child spoke out of turn".to_owned();
                return Err(Error { kind: ErrorKind::System, message });
            }
        }
    }
}

pub(crate) fn wait(socket: &OwnedFd) -> Result<(), Error> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for the container to start", errno)),
    }
}
