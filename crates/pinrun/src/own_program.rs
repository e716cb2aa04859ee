//! Running from something that no container can write to.
//!
//! A process that enters a container shows its program there as `/proc/<pid>/exe`, and an image can have it executed again
//! (`#!/proc/self/exe`) and then overwrite it on the host (CVE-2019-5736). So before anything is entered, the program
//! executes itself from a detached read-only clone of its own mount, which nobody in a container can make writable; where
//! that is not permitted (no privileges), from a sealed copy in memory.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{
        CWD, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, fcntl_get_seals, fstatvfs,
        memfd_create, openat,
    },
    io::Errno,
    mount::{MountAttrFlags, OpenTreeFlags, open_tree},
};
use syscall::{exec::StringArray, mount_attributes::MountAttributes};

use crate::failure::Failure;

const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Goes on only in a program that cannot be overwritten: executes it from such a place where this one can be.
pub(crate) fn protect() -> Result<(), Failure> {
    restart().map_err(|error| Failure::io("run from a program that no container can write to", error))
}

fn restart() -> io::Result<()> {
    let program = openat(CWD, c"/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    if is_safe(&program)? {
        return Ok(());
    }
    let safe = match read_only(program.as_fd()) {
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => sealed(program)?,
        result => result?,
    };
    let strings = |words: &mut dyn Iterator<Item = Vec<u8>>| -> io::Result<StringArray> {
        Ok(StringArray::new(words.map(CString::new).collect::<Result<_, _>>()?))
    };
    let arguments = strings(&mut std::env::args_os().map(OsStringExt::into_vec))?;
    let environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    Err(syscall::exec::execve_file(safe.as_fd(), &arguments, &strings(&mut { environment })?))
}

fn is_safe(program: &OwnedFd) -> io::Result<bool> {
    if fstatvfs(program)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(true);
    }
    Ok(fcntl_get_seals(program).is_ok_and(|seals| seals.contains(SEALS)))
}

fn read_only(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(program, c"", flags)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, false).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(tree)
}

fn sealed(program: OwnedFd) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = match memfd_create(c"pinrun", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 the flag is unknown.
        Err(Errno::INVAL) => memfd_create(c"pinrun", flags)?,
        result => result?,
    };
    let mut copy = File::from(copy);
    io::copy(&mut File::from(program), &mut copy)?;
    // Refused while the kernel moves a page of the copy, which is over soon.
    let mut tries = 40;
    loop {
        match fcntl_add_seals(&copy, SEALS) {
            Err(Errno::BUSY) if tries > 0 => tries -= 1,
            result => break result?,
        }
    }
    Ok(copy.into())
}
