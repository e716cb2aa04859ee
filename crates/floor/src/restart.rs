//! Executes the program again from a read-only clone of its mount (CVE-2019-5736).

use std::{ffi::CString, io, os::unix::ffi::OsStringExt};

use rustix::{
    fs::{CWD, StatVfsMountFlags, statvfs},
    mount::{MountAttrFlags, OpenTreeFlags, open_tree},
};
use syscall::{exec::StringArray, mount_attributes::MountAttributes};

/// Returns if the program runs from a read-only mount; else executes it from one.
pub(crate) fn from_read_only_program() -> io::Result<()> {
    if statvfs(c"/proc/self/exe")?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let program = open_tree(CWD, c"/proc/self/exe", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() }.apply(&program, false)?;
    let words = std::env::args_os().map(|word| CString::new(word.into_vec())).collect::<Result<_, _>>()?;
    Err(syscall::exec::execve_file(
        rustix::fd::AsFd::as_fd(&program),
        &StringArray::new(words),
        &StringArray::new(vec![]),
    ))
}
