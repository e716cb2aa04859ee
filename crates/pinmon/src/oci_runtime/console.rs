//! The terminal of a container, which its runtime sends over a Unix socket (`--console-socket` of runc).

use std::io::{self, IoSliceMut};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, StatxFlags, statx},
    io::ioctl_fionbio,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg},
};

/// Maximum number of bytes of the message, which is the path of the terminal.
const MESSAGE_MAX: usize = 4096;
/// Maximum number of descriptors in a message (`SCM_MAX_FD` of the kernel): the kernel closes those that do not fit, in
/// this thread.
const DESCRIPTORS_MAX: usize = 253;
/// Major and minor number of `/dev/ptmx`, of which every master side is an open file.
const MASTER_DEVICE: (u32, u32) = (5, 2);

/// Receives the master side of a terminal that a runtime, which has exited, sent to this listening socket. `wrap` takes
/// the sockets and all that was sent, because a last close may block: descriptors that were not received are closed with
/// their socket.
pub(crate) fn receive_terminal<T: AsFd>(socket: OwnedFd, wrap: impl Fn(OwnedFd) -> T) -> io::Result<T> {
    let socket = wrap(socket);
    ioctl_fionbio(&socket, true)?;
    let connection = accept_with(&socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        .map(&wrap)
        .map_err(|_| io::Error::other("the runtime has not connected to the socket"))?;
    let mut message = [0; MESSAGE_MAX];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(&connection, &mut [IoSliceMut::new(&mut message)], &mut control, flags)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors: Vec<T> = descriptors.flatten().map(wrap).collect();
    if descriptors.is_empty() {
        return Err(io::Error::other("the runtime has sent no descriptor"));
    }
    let master = descriptors.swap_remove(0);
    if !is_master(&master) {
        return Err(io::Error::other("the runtime has sent a descriptor that is not the master of a terminal"));
    }
    ioctl_fionbio(&master, true)?;
    Ok(master)
}

/// Whether a file is the master side of a terminal. Any ioctl(2) of a file of FUSE waits for its server, and so does
/// fstat(2), so neither is called before it is known to be a device.
fn is_master(file: &impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let is_device = statx(file, c"", flags, StatxFlags::TYPE).is_ok_and(|attributes| {
        let number = (attributes.stx_rdev_major, attributes.stx_rdev_minor);
        let file_type = FileType::from_raw_mode(attributes.stx_mode.into());
        file_type == FileType::CharacterDevice && number == MASTER_DEVICE
    });
    // Only a master has a number.
    is_device && rustix::pty::ptsname(file, Vec::new()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        fs::File,
        mem::MaybeUninit,
        os::fd::BorrowedFd,
        os::unix::net::{UnixListener, UnixStream},
        rc::Rc,
    };

    use rustix::{
        io::IoSlice,
        net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
        pty::{OpenptFlags, openpt},
    };

    use super::*;

    /// A file whose close is counted.
    struct Counted(OwnedFd, Rc<Cell<usize>>);

    impl AsFd for Counted {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
        }
    }

    /// Sends descriptors in one message, and receives a terminal. Returns the outcome, and how many files were closed.
    fn received(files: &[BorrowedFd<'_>]) -> (Result<(), String>, usize) {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("console");
        let listener = UnixListener::bind(&path).expect("bind");
        let client = UnixStream::connect(&path).expect("connect");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        sendmsg(&client, &[IoSlice::new(b"/dev/pts/0")], &mut control, SendFlags::empty()).expect("send");
        let closed = Rc::new(Cell::new(0));
        let outcome = receive_terminal(listener.into(), |file| Counted(file, Rc::clone(&closed)));
        let outcome = outcome.map(drop).map_err(|error| error.to_string());
        (outcome, closed.get())
    }

    #[test]
    fn a_master_is_received_and_everything_that_came_with_it_is_closed_elsewhere() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("open /dev/ptmx");
        let other = File::open("/dev/null").expect("open");
        assert_eq!(received(&[master.as_fd()]), (Ok(()), 3));
        assert_eq!(received(&[master.as_fd(), other.as_fd(), other.as_fd(), other.as_fd()]), (Ok(()), 6));
    }

    #[test]
    fn other_files_are_refused_before_their_number_is_queried() {
        let (read, _write) = rustix::pipe::pipe().expect("pipe");
        let file = tempfile::tempfile().expect("file");
        let device = File::open("/dev/null").expect("open");
        for file in [read.as_fd(), file.as_fd(), device.as_fd()] {
            let (outcome, closed) = received(&[file]);
            let error = outcome.expect_err("not a master");
            assert!(error.contains("not the master of a terminal"), "{error}");
            assert_eq!(closed, 3);
        }
        let (outcome, _) = received(&[]);
        assert!(outcome.expect_err("nothing was sent").contains("no descriptor"));
    }
}
