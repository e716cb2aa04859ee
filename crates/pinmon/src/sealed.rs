//! Running from a sealed copy in memory, so that no container can write to a program of the host through
//! `/proc/<pid>/exe` (CVE-2019-5736).

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Goes on only in a sealed copy: executes it where this is none.
pub(crate) fn ensure() -> io::Result<()> {
    let mut program = File::open("/proc/self/exe")?;
    if fcntl_get_seals(&program).is_ok_and(|seals| seals.contains(SEALS)) {
        return Ok(());
    }
    let mut copy = File::from(memfd()?);
    io::copy(&mut program, &mut copy)?;
    seal(&copy)?;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "pinmon".into());
    Err(Command::new(path).arg0(name).args(arguments).exec())
}

/// The kernel refuses, after 150 ms, while anything else refers to a page of the copy: compaction and migration do that
/// for a moment on a machine short of memory, and are no reason to stay without a monitor (`memfd_wait_for_pins`, Linux).
fn seal(copy: &File) -> io::Result<()> {
    const TRIES: usize = 40;
    for _ in 1..TRIES {
        match fcntl_add_seals(copy, SEALS) {
            Err(rustix::io::Errno::BUSY) => {}
            result => return Ok(result?),
        }
    }
    Ok(fcntl_add_seals(copy, SEALS)?)
}

/// Executable also where `vm.memfd_noexec` makes that not the default (Linux 6.3; older kernels do not know the flag).
fn memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(c"pinmon", flags | MemfdFlags::EXEC) {
        Err(rustix::io::Errno::INVAL) => Ok(memfd_create(c"pinmon", flags)?),
        result => Ok(result?),
    }
}
