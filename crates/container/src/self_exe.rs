//! Protection of the running program against being overwritten from within a container (CVE-2019-5736).
//!
//! The program of a process that enters a container is visible there as `/proc/<pid>/exe`. An image can have it
//! executed again (`#!/proc/self/exe`) and then overwrite it on the host. So before it enters anything, the program
//! executes itself from a detached read-only clone of its own mount, which no process in a container can make writable;
//! where that is not permitted (an unprivileged caller), from a sealed copy in memory.

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

/// Makes sure that the program cannot be overwritten: returns if this is so already; otherwise executes the program
/// again, from a read-only clone of its mount or, where that is not permitted, from a sealed copy. Call this first,
/// while the process is single-threaded.
///
/// The clone needs Linux 5.12, the copy Linux 3.17.
///
/// # Errors
/// Neither could be made, or the program not be executed.
pub fn protect() -> io::Result<()> {
    // Decide by the mount that the program was executed from, and not by environment or arguments, which can be forged.
    if statvfs(PROGRAM)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let program = open()?;
    if is_sealed(&program) {
        return Ok(());
    }
    execute(read_only(program)?)
}

/// Protects the program like [`protect`], but always with a sealed copy: for a long-running program, which should not
/// keep a mount of the host busy.
///
/// # Errors
/// The copy could not be made or executed.
pub fn seal() -> io::Result<()> {
    let program = open()?;
    if is_sealed(&program) { Ok(()) } else { execute(sealed_copy(program)?) }
}

/// Returns a program that cannot be overwritten through the result: from a read-only clone of its mount or, where that is
/// not permitted, a sealed copy.
///
/// # Errors
/// Neither could be made.
pub fn read_only(program: OwnedFd) -> io::Result<OwnedFd> {
    match read_only_clone(program.as_fd()) {
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => sealed_copy(program),
        tree => Ok(tree?),
    }
}

fn open() -> Result<OwnedFd, Errno> {
    openat(CWD, PROGRAM, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn is_sealed(program: &OwnedFd) -> bool {
    fcntl_get_seals(program).is_ok_and(|seals| seals.contains(SEALS))
}

/// Executes a program with the arguments and the environment of this process; returns only on failure.
fn execute(program: OwnedFd) -> io::Result<()> {
    let strings = |values: &mut dyn Iterator<Item = Vec<u8>>| -> io::Result<StringArray> {
        Ok(StringArray::new(values.map(CString::new).collect::<Result<_, _>>()?))
    };
    let arguments = strings(&mut std::env::args_os().map(OsStringExt::into_vec))?;
    let mut environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    Err(syscall::exec::execve_file(program.as_fd(), &arguments, &strings(&mut environment)?))
}

fn read_only_clone(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(program, c"", flags)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, false).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(tree)
}

/// Copies a program to a memfd and seals it, so that it cannot be modified any longer.
///
/// # Errors
/// Those of memfd_create(2), of reading the program, and of sealing.
pub fn sealed_copy(program: OwnedFd) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = match memfd_create(c"program", flags | MemfdFlags::EXEC) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create(c"program", flags)?,
        result => result?,
    };
    let mut copy = File::from(copy);
    io::copy(&mut File::from(program), &mut copy)?;
    seal_file(&copy)?;
    Ok(copy.into())
}

/// Seals the copy, with retries. The kernel fails with EBUSY after 150 ms while another reference to a page of the copy
/// exists (`memfd_wait_for_pins`). Compaction and migration hold such references briefly when memory is short.
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
