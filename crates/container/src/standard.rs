//! Standard descriptors.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, OFlags, Uid, fchown, fstat, makedev},
    io::Errno,
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout},
};

use crate::{Error, Stdio, devices::open_null, error::During, terminal::Terminal};

/// Moves the caller's descriptors to 3 and above, so that putting one in its place overwrites no other.
pub(crate) fn move_up(stdio: Stdio) -> Result<Stdio, Error> {
    let up = |fd: Option<OwnedFd>| -> Result<Option<OwnedFd>, Error> {
        use rustix::fd::AsRawFd;
        match fd {
            Some(fd) if fd.as_raw_fd() < 3 => {
                rustix::io::fcntl_dupfd_cloexec(&fd, 3).map(Some).during(|| "duplicate a standard descriptor")
            }
            fd => Ok(fd),
        }
    };
    Ok(Stdio { stdin: up(stdio.stdin)?, stdout: up(stdio.stdout)?, stderr: up(stdio.stderr)?, ..stdio })
}

/// Descriptors the child needs.
pub(crate) fn descriptors(stdio: &Stdio) -> impl Iterator<Item = BorrowedFd<'_>> {
    [&stdio.stdin, &stdio.stdout, &stdio.stderr].into_iter().flatten().map(AsFd::as_fd)
}

/// In the child: 0, 1 and 2 from the terminal, or the caller's own, or from what was given, or `/dev/null`; owned by
/// the process's user, so that it can open `/dev/stdout` again.
pub(crate) fn apply(stdio: &Stdio, terminal: Option<&Terminal>, root: BorrowedFd<'_>, uid: Uid) -> Result<(), Error> {
    let null = match terminal {
        None if !stdio.own && descriptors(stdio).count() < 3 => Some(open_null(root, OFlags::RDWR)?),
        _ => None,
    };
    if terminal.is_some() || !stdio.own {
        let terminal = terminal.map(|terminal| terminal.slave.as_fd());
        let null = null.as_ref().map(AsFd::as_fd);
        // All of them are beyond 2.
        let what = || "put a standard descriptor in its place";
        dup2_stdin(choose(terminal, &stdio.stdin, null)?).during(what)?;
        dup2_stdout(choose(terminal, &stdio.stdout, null)?).during(what)?;
        dup2_stderr(choose(terminal, &stdio.stderr, null)?).during(what)?;
    }
    for (number, fd) in [stdin(), stdout(), stderr()].into_iter().enumerate() {
        if give_to(fd, uid)? == Found::Null && stdio.own && terminal.is_none() {
            use_own_null(number, root)?;
        }
    }
    Ok(())
}

/// The host's `/dev/null` is on a mount of the host: CRIU could not find it again. A container without one keeps it.
fn use_own_null(number: usize, root: BorrowedFd<'_>) -> Result<(), Error> {
    let Ok(null) = open_null(root, OFlags::RDWR) else { return Ok(()) };
    let put = match number {
        0 => dup2_stdin(&null),
        1 => dup2_stdout(&null),
        _ => dup2_stderr(&null),
    };
    put.during(|| "put the container's /dev/null in place of the host's")
}

/// What a standard descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Null,
    Other,
}

/// In the forerunner of a container in a user namespace, with the caller's rights: gives them to the user that the
/// container's is outside. Where that cannot be, they still work.
pub(crate) fn give_outside(stdio: &Stdio, uid: Uid) {
    let own = [stdin(), stdout(), stderr()];
    for fd in own.into_iter().filter(|_| stdio.own).chain(descriptors(stdio)) {
        let _ = give_to(fd, uid);
    }
}

fn choose<'a>(
    terminal: Option<BorrowedFd<'a>>,
    given: &'a Option<OwnedFd>,
    null: Option<BorrowedFd<'a>>,
) -> Result<BorrowedFd<'a>, Error> {
    let chosen = terminal.or(given.as_ref().map(AsFd::as_fd)).or(null);
    chosen.ok_or_else(|| Error::system("find a standard descriptor", Errno::BADF))
}

fn give_to(fd: BorrowedFd<'_>, uid: Uid) -> Result<Found, Error> {
    let found = fstat(fd).during(|| "ask what a standard descriptor is")?;
    let null = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == makedev(1, 3);
    if null {
        return Ok(Found::Null);
    }
    if found.st_uid == uid.as_raw() {
        return Ok(Found::Other);
    }
    match fchown(fd, Some(uid), None) {
        // Sockets of some kinds, foreign ids and read-only mounts cannot be given; the descriptor itself still works.
        Err(Errno::INVAL | Errno::PERM | Errno::ROFS | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Found::Other),
        result => {
            result.map(|()| Found::Other).during(|| format!("give a standard descriptor to user {}", uid.as_raw()))
        }
    }
}
