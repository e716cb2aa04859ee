//! Terminals of the container's own devpts.

use std::mem::ManuallyDrop;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, FsWord, Mode, OFlags, ResolveFlags, fstat, fstatfs, makedev, openat2},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
    process::ioctl_tiocsctty,
    pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt},
    termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

use crate::{
    Error, Stdio, descriptors,
    destination::{self, Shape},
    error::During,
    mount_tree::attach,
    procfs::Procfs,
    sync::ChildEnd,
};

/// Magic number of devpts (`linux/magic.h`).
const DEVPTS_SUPER_MAGIC: FsWord = 0x1cd1;
/// Major and minor number of ptmx.
const PTMX: (u32, u32) = (5, 2);

/// Both sides of a terminal.
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    /// Dropping it does not close it (see [`crate::descriptors::leave`]).
    pub(crate) slave: ManuallyDrop<OwnedFd>,
}

/// Opens a new terminal. `/dev/pts/ptmx` is checked before it is opened, because a running container can replace it.
pub(crate) fn open(
    root: BorrowedFd<'_>,
    proc: &Procfs,
    size: Option<oci::TerminalSize>,
    stdio: &Stdio,
) -> Result<Terminal, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let ptmx = openat2(root, c"/dev/pts/ptmx", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
        .during(|| "open /dev/pts/ptmx for the terminal (is a devpts mounted on /dev/pts?)")?;
    let node = fstat(&ptmx).during(|| "stat /dev/pts/ptmx")?;
    let file_system = fstatfs(&ptmx).during(|| "find the file system of /dev/pts/ptmx")?.f_type;
    let is_ptmx = FileType::from_raw_mode(node.st_mode) == FileType::CharacterDevice
        && node.st_rdev == makedev(PTMX.0, PTMX.1)
        && file_system == DEVPTS_SUPER_MAGIC;
    if !is_ptmx {
        return Err(Error::system("check /dev/pts/ptmx: it is not the ptmx device of a devpts", Errno::NODEV));
    }
    let master = proc.reopen(ptmx.as_fd(), OFlags::RDWR | OFlags::NOCTTY).during(|| "open /dev/pts/ptmx")?;
    unlockpt(&master).during(|| "unlock the terminal")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags).during(|| "open the terminal's slave side")?;
    if let Some(size) = size {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).during(|| "set the terminal's size")?;
    }
    if stdio.raw_newlines {
        let settings = tcgetattr(&slave).and_then(|mut settings| {
            settings.output_modes.remove(OutputModes::ONLCR);
            tcsetattr(&slave, OptionalActions::Now, &settings)
        });
        settings.during(|| "turn off ONLCR of the terminal")?;
    }
    Ok(Terminal { master, slave: ManuallyDrop::new(slave) })
}

/// Reports that the child is set up, and hands the master side over. The slave's descriptor is closed already.
pub(crate) fn hand_over(terminal: Option<Terminal>, sync: &ChildEnd) -> Result<(), Error> {
    let Some(Terminal { master, .. }) = terminal else { return sync.send_ready(None) };
    // The master is closed on return: a child that kept it would hold its own terminal open.
    sync.send_ready(Some(master.as_fd()))
}

impl Terminal {
    /// Bind mounts the slave side on `/dev/console`, from its descriptor and not by path (CVE-2025-52565).
    pub(crate) fn mount_console(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(self.slave.as_fd(), c"", flags).during(|| "clone the terminal for /dev/console")?;
        let dev = destination::find_or_make(root, c"/dev", Shape::Directory)?;
        // Resolve in /dev and not in the root, so that a symlink of the image cannot redirect it.
        let console = destination::find_or_make(dev.as_fd(), c"/console", Shape::File)?;
        attach(tree.as_fd(), console.as_fd()).during(|| "mount the terminal on /dev/console")?;
        descriptors::leave((tree, dev, console));
        Ok(())
    }

    /// Makes this the controlling terminal of the calling session leader.
    pub(crate) fn control(&self) -> Result<(), Error> {
        ioctl_tiocsctty(self.slave.as_fd()).during(|| "make the terminal the controlling one")
    }
}
