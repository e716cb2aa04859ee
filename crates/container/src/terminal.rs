//! A terminal of the container's own devpts.

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
    mounts::attach,
    procfs::Procfs,
    sync::ChildEnd,
};

/// Magic of devpts (`linux/magic.h`).
const DEVPTS_SUPER_MAGIC: FsWord = 0x1cd1;
/// Major and minor number of ptmx.
const PTMX: (u32, u32) = (5, 2);

/// Both sides.
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    /// Never closed by its owner (see [`crate::descriptors::leave`]).
    pub(crate) slave: ManuallyDrop<OwnedFd>,
}

/// Opens a new terminal. What is at `/dev/pts/ptmx` is checked before it is opened: in a running container it is the
/// container's to change.
pub(crate) fn open(
    root: BorrowedFd<'_>,
    proc: &Procfs,
    size: Option<oci::ConsoleSize>,
    stdio: &Stdio,
) -> Result<Terminal, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let found = openat2(root, c"/dev/pts/ptmx", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
        .during(|| "open /dev/pts/ptmx for the terminal (is a devpts mounted on /dev/pts?)")?;
    let node = fstat(&found).during(|| "ask what /dev/pts/ptmx is")?;
    let system = fstatfs(&found).during(|| "ask what /dev/pts/ptmx is on")?.f_type;
    let right = FileType::from_raw_mode(node.st_mode) == FileType::CharacterDevice
        && node.st_rdev == makedev(PTMX.0, PTMX.1)
        && system == DEVPTS_SUPER_MAGIC;
    if !right {
        return Err(Error::system("check /dev/pts/ptmx: it is not the one of a devpts", Errno::NODEV));
    }
    let master = proc.reopen(found.as_fd(), OFlags::RDWR | OFlags::NOCTTY).during(|| "open /dev/pts/ptmx")?;
    unlockpt(&master).during(|| "unlock the terminal")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags).during(|| "open the terminal's slave side")?;
    if let Some(size) = size {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).during(|| "set the terminal's size")?;
    }
    if stdio.plain_line_ends {
        let settings = tcgetattr(&slave).and_then(|mut settings| {
            settings.output_modes.remove(OutputModes::ONLCR);
            tcsetattr(&slave, OptionalActions::Now, &settings)
        });
        settings.during(|| "leave the terminal's line ends as they are written")?;
    }
    Ok(Terminal { master, slave: ManuallyDrop::new(slave) })
}

/// Says that the set-up is done, and gives the master side away; the slave's descriptor is closed already.
pub(crate) fn hand_over(terminal: Option<Terminal>, sync: &ChildEnd) -> Result<(), Error> {
    let Some(Terminal { master, .. }) = terminal else { return sync.ready(None) };
    // Closed here: a child that kept it would be its own terminal's last reader.
    sync.ready(Some(master.as_fd()))
}

impl Terminal {
    /// Binds the slave side upon `/dev/console`, from its descriptor (CVE-2025-52565).
    pub(crate) fn mount_console(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(self.slave.as_fd(), c"", flags).during(|| "clone the terminal for /dev/console")?;
        let dev = destination::find_or_make(root, c"/dev", Shape::Directory)?;
        // Not through a symlink that an image may have there.
        let console = destination::find_or_make(dev.as_fd(), c"/console", Shape::File)?;
        attach(tree.as_fd(), console.as_fd()).during(|| "mount the terminal on /dev/console")?;
        descriptors::leave((tree, dev, console));
        Ok(())
    }

    /// Makes it the controlling terminal of the calling session leader.
    pub(crate) fn control(&self) -> Result<(), Error> {
        ioctl_tiocsctty(self.slave.as_fd()).during(|| "make the terminal the controlling one")
    }
}
