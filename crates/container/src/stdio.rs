//! Stdio descriptors 0, 1 and 2 of a process.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, OFlags, Uid, fchown, fstat, makedev},
    io::Errno,
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout},
};

use crate::{Error, Stdio, devices::open_null, error::During, terminal::Terminal};

/// Moves the caller's descriptors to 3 and above, so that duplicating one to its final number overwrites no other.
pub(crate) fn move_above_2(stdio: Stdio) -> Result<Stdio, Error> {
    let up = |fd: Option<OwnedFd>| -> Result<Option<OwnedFd>, Error> {
        use rustix::fd::AsRawFd;
        match fd {
            Some(fd) if fd.as_raw_fd() < 3 => {
                rustix::io::fcntl_dupfd_cloexec(&fd, 3).map(Some).during(|| "duplicate a stdio descriptor")
            }
            fd => Ok(fd),
        }
    };
    Ok(Stdio { stdin: up(stdio.stdin)?, stdout: up(stdio.stdout)?, stderr: up(stdio.stderr)?, ..stdio })
}

/// Returns the descriptors that the child needs.
pub(crate) fn descriptors(stdio: &Stdio) -> impl Iterator<Item = BorrowedFd<'_>> {
    [&stdio.stdin, &stdio.stdout, &stdio.stderr].into_iter().flatten().map(AsFd::as_fd)
}

/// Sets 0, 1 and 2 to the terminal, or the inherited descriptors, or the given ones, or `/dev/null`. Changes their
/// owner to the process's user, so that it can open `/dev/stdout` again. Runs in the child.
pub(crate) fn apply(stdio: &Stdio, terminal: Option<&Terminal>, root: BorrowedFd<'_>, uid: Uid) -> Result<(), Error> {
    let null = match terminal {
        None if !stdio.inherit && descriptors(stdio).count() < 3 => Some(open_null(root, OFlags::RDWR)?),
        _ => None,
    };
    if terminal.is_some() || !stdio.inherit {
        let terminal = terminal.map(|terminal| terminal.slave.as_fd());
        let null = null.as_ref().map(AsFd::as_fd);
        // All sources are above 2.
        let operation = || "set a stdio descriptor";
        dup2_stdin(choose(terminal, &stdio.stdin, null)?).during(operation)?;
        dup2_stdout(choose(terminal, &stdio.stdout, null)?).during(operation)?;
        dup2_stderr(choose(terminal, &stdio.stderr, null)?).during(operation)?;
    }
    for (number, fd) in [stdin(), stdout(), stderr()].into_iter().enumerate() {
        if chown_to(fd, uid)? == StdioKind::Null && stdio.inherit && terminal.is_none() {
            use_container_null(number, root)?;
        }
    }
    Ok(())
}

/// Replaces the host's `/dev/null`, which is on a mount of the host that CRIU could not restore, by the container's. A
/// container without `/dev/null` keeps the host's.
fn use_container_null(number: usize, root: BorrowedFd<'_>) -> Result<(), Error> {
    let Ok(null) = open_null(root, OFlags::RDWR) else { return Ok(()) };
    let replaced = match number {
        0 => dup2_stdin(&null),
        1 => dup2_stdout(&null),
        _ => dup2_stderr(&null),
    };
    replaced.during(|| "replace the host's /dev/null by the container's")
}

/// Kind of a stdio descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StdioKind {
    Null,
    Other,
}

/// Changes the owner of the descriptors to `uid`, the host's id of the process's user. Runs in the intermediate process
/// of a container in a user namespace, with the caller's privileges. Where it fails, the descriptors still work.
pub(crate) fn chown_outside(stdio: &Stdio, uid: Uid) {
    let inherited = [stdin(), stdout(), stderr()];
    for fd in inherited.into_iter().filter(|_| stdio.inherit).chain(descriptors(stdio)) {
        let _ = chown_to(fd, uid);
    }
}

fn choose<'a>(
    terminal: Option<BorrowedFd<'a>>,
    given: &'a Option<OwnedFd>,
    null: Option<BorrowedFd<'a>>,
) -> Result<BorrowedFd<'a>, Error> {
    let chosen = terminal.or(given.as_ref().map(AsFd::as_fd)).or(null);
    chosen.ok_or_else(|| Error::system("find a stdio descriptor", Errno::BADF))
}

fn chown_to(fd: BorrowedFd<'_>, uid: Uid) -> Result<StdioKind, Error> {
    let stat = fstat(fd).during(|| "stat a stdio descriptor")?;
    let null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == makedev(1, 3);
    if null {
        return Ok(StdioKind::Null);
    }
    if stat.st_uid == uid.as_raw() {
        return Ok(StdioKind::Other);
    }
    match fchown(fd, Some(uid), None) {
        // Some sockets, unmapped ids and read-only mounts do not allow it; the descriptor itself still works.
        Err(Errno::INVAL | Errno::PERM | Errno::ROFS | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(StdioKind::Other),
        result => result
            .map(|()| StdioKind::Other)
            .during(|| format!("change the owner of a stdio descriptor to user {}", uid.as_raw())),
    }
}
