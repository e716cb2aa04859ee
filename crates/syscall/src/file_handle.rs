//! File handles: references to files that do not keep them alive.
//!
//! Source: name_to_handle_at(2), open_by_handle_at(2).

use std::{io, os::fd::FromRawFd};

use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Room for the identifier of a file, in bytes: `MAX_HANDLE_SZ` of the kernel.
const IDENTIFIER_MAX: usize = 128;

/// The kernel's name of a file: `struct file_handle`.
///
/// A handle of a namespace (Linux 6.18) holds its id, which is unique until the next boot, so it never refers to another
/// namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FileHandle {
    length: u32,
    kind: i32,
    identifier: [u8; IDENTIFIER_MAX],
}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = usize::try_from(self.length).unwrap_or(0).min(IDENTIFIER_MAX);
        write!(f, "FileHandle({:#x}, {:02x?})", self.kind, &self.identifier[..length])
    }
}

/// Returns the handle of an open file.
///
/// # Errors
/// `EOPNOTSUPP` if the file system has no handles: that of namespaces before Linux 6.18.
pub fn file_handle(file: impl AsFd) -> io::Result<FileHandle> {
    let mut handle = FileHandle { length: IDENTIFIER_MAX as u32, kind: 0, identifier: [0; IDENTIFIER_MAX] };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: the descriptor is open for the call, the path is an empty C string, and the kernel writes at most `length`
    // bytes to `identifier` of a structure laid out as its own, and one int; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(handle) }
}

/// Opens a file for reading by its handle. `mount` is any open file of the same file system.
///
/// # Errors
/// `ESTALE` if the file is gone; `EPERM` without `CAP_DAC_READ_SEARCH` in the initial user namespace.
pub fn open_by_handle(mount: impl AsFd, handle: &FileHandle) -> io::Result<OwnedFd> {
    open(mount.as_fd().as_raw_fd(), handle)
}

/// Opens a namespace by its handle. Linux 6.18.
///
/// # Errors
/// `ESTALE` if the namespace is gone; `EBADF` on an older kernel; `EPERM` without `CAP_SYS_ADMIN` in the user namespace
/// that owns it.
pub fn open_namespace_by_handle(handle: &FileHandle) -> io::Result<OwnedFd> {
    /// The root of the file system of namespaces, which is mounted nowhere (linux/fcntl.h).
    const FD_NSFS_ROOT: RawFd = -10_003;
    open(FD_NSFS_ROOT, handle)
}

fn open(mount: RawFd, handle: &FileHandle) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the kernel checks `mount`; it reads `length` bytes, at most 128 because only the kernel sets the field, of a
    // structure laid out as its own.
    let result = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount, std::ptr::from_ref(handle), flags) };
    match i32::try_from(result) {
        // SAFETY: the kernel returned a new descriptor, which nothing else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn a_file_is_opened_by_its_handle() {
        let path = std::env::temp_dir().join(format!("file-handle-{}", std::process::id()));
        std::fs::write(&path, "content").unwrap();
        let (mount, file) = (File::open(std::env::temp_dir()).unwrap(), File::open(&path).unwrap());
        let handle = file_handle(&file);
        std::fs::remove_file(&path).unwrap();
        // Some file systems have no handles; the tests of crate `netns` use those of namespaces.
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        };
        let mut text = String::new();
        File::from(open_by_handle(&mount, &handle).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        drop(file);
        let error = open_by_handle(&mount, &handle).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }
}
