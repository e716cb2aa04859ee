//! Running from something that no container can write to.
//!
//! A process that enters a container shows its program there as `/proc/<pid>/exe`, and an image can have it executed
//! again (`#!/proc/self/exe`) and then overwrite it on the host (CVE-2019-5736). So before anything is entered, the
//! program executes itself from a detached read-only clone of its own mount, which nobody in a container can make
//! writable; where that is not permitted (no privileges), from a sealed copy in memory.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::unix::ffi::OsStringExt,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        CWD, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, fcntl_get_seals, memfd_create,
        openat, statvfs,
    },
    io::Errno,
    mount::{MountAttrFlags, OpenTreeFlags, open_tree},
};
use syscall::{exec::StringArray, mount_attributes::MountAttributes};

const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);
const PROGRAM: &CStr = c"/proc/self/exe";

/// Goes on only in a program that cannot be overwritten: executes it again where this one can be, from a read-only
/// clone of its mount or, where that is not permitted, from a sealed copy. To be called first of all, in a process of
/// one thread.
///
/// Linux 5.12 for the clone, 3.17 for the copy.
///
/// # Errors
/// Neither could be made or executed.
pub fn protect() -> io::Result<()> {
    // The mount that it was executed from says it; nothing of the environment or the arguments can.
    if statvfs(PROGRAM)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let program = open()?;
    if is_sealed(&program) {
        return Ok(());
    }
    match read_only(program.as_fd()) {
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => execute(sealed_copy(program)?),
        tree => execute(tree?),
    }
}

/// The same, always from a sealed copy: for a program that stays, and should not hold a mount of the host.
///
/// # Errors
/// As [`protect`].
pub fn seal() -> io::Result<()> {
    let program = open()?;
    if is_sealed(&program) { Ok(()) } else { execute(sealed_copy(program)?) }
}

fn open() -> Result<OwnedFd, Errno> {
    openat(CWD, PROGRAM, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn is_sealed(program: &OwnedFd) -> bool {
    fcntl_get_seals(program).is_ok_and(|seals| seals.contains(SEALS))
}

/// With the arguments and the environment of this call.
fn execute(program: OwnedFd) -> io::Result<()> {
    let strings = |words: &mut dyn Iterator<Item = Vec<u8>>| -> io::Result<StringArray> {
        Ok(StringArray::new(words.map(CString::new).collect::<Result<_, _>>()?))
    };
    let arguments = strings(&mut std::env::args_os().map(OsStringExt::into_vec))?;
    let mut environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    Err(syscall::exec::execve_file(program.as_fd(), &arguments, &strings(&mut environment)?))
}

fn read_only(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(program, c"", flags)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, false).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(tree)
}

/// A copy of a program in memory that nobody can write to any more.
///
/// # Errors
/// Of memfd_create(2), of reading, or of sealing.
pub fn sealed_copy(program: OwnedFd) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = match memfd_create(c"program", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 the flag is unknown.
        Err(Errno::INVAL) => memfd_create(c"program", flags)?,
        result => result?,
    };
    let mut copy = File::from(copy);
    io::copy(&mut File::from(program), &mut copy)?;
    seal_file(&copy)?;
    Ok(copy.into())
}

/// The kernel refuses, after 150 ms, while anything else refers to a page of the copy: compaction and migration do that
/// for a moment on a machine short of memory, and are no reason to stay without a program (`memfd_wait_for_pins`,
/// Linux).
fn seal_file(copy: &File) -> io::Result<()> {
    const TRIES: usize = 40;
    for _ in 1..TRIES {
        match fcntl_add_seals(copy, SEALS) {
            Err(Errno::BUSY) => {}
            result => return Ok(result?),
        }
    }
    Ok(fcntl_add_seals(copy, SEALS)?)
}
