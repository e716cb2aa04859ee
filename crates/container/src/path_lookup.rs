//! PATH lookup of the container's program, and the errors of execve.

use std::{
    ffi::{CStr, CString},
    io,
};

use rustix::{
    fs::{Access, AtFlags, CWD, FileType, accessat, stat},
    io::Errno,
};
use syscall::error_text::error_text;

use crate::{Error, ErrorKind};

/// The default PATH for an environment without PATH, as in execvp(3) of most systems.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds the file of program `name`. Runs as the process's user, in its working directory.
pub(crate) fn find(name: &CStr, environment: &[CString]) -> Result<CString, Error> {
    let shown = name.to_string_lossy();
    if name.to_bytes().contains(&b'/') {
        return match check(name) {
            Ok(()) => Ok(name.to_owned()),
            Err(errno) => Err(lookup_error(&shown, errno)),
        };
    }
    let path = environment.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
    let path = path.unwrap_or(DEFAULT_PATH.as_bytes());
    let mut denied = None;
    for directory in path.split(|byte| *byte == b':') {
        let directory: &[u8] = if directory.is_empty() { b"." } else { directory };
        let Ok(file) = CString::new([directory, b"/", name.to_bytes()].concat()) else { continue };
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(Errno::ACCESS | Errno::ISDIR) if denied.is_none() => denied = Some(file),
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(file) => match check(&file) {
            Err(errno) => lookup_error(&file.to_string_lossy(), errno),
            Ok(()) => lookup_error(&shown, Errno::ACCESS),
        },
        None => {
            let path = String::from_utf8_lossy(path);
            Error::exec(&shown, Errno::NOENT, format_args!("executable file not found in $PATH ({path})"))
        }
    })
}

/// Checks that this is a regular file that the user may execute.
fn check(file: &CStr) -> Result<(), Errno> {
    let stat = stat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::ACCESS),
    }
}

fn lookup_error(shown: &str, errno: Errno) -> Error {
    let reason = match errno {
        Errno::NOENT | Errno::NOTDIR => "no such file or directory",
        Errno::ACCESS => "permission denied: not an executable file for this user",
        Errno::ISDIR => "permission denied: it is a directory",
        errno => &error_text(&errno.into()),
    };
    Error::exec(shown, errno, reason)
}

/// Returns the error of an execve of an existing file, with the likely cause.
pub(crate) fn exec_error(file: &CStr, cause: &io::Error) -> Error {
    let shown = file.to_string_lossy();
    let errno = Errno::from_io_error(cause).unwrap_or(Errno::IO);
    let reason = match errno {
        Errno::NOEXEC => "exec format error: neither a program for this machine nor a script that starts with \"#!\"",
        Errno::NOENT => "no such file or directory: its interpreter or dynamic loader is missing",
        Errno::ACCESS => "permission denied: it or its interpreter may not be executed (or its mount is noexec)",
        Errno::TOOBIG => "its arguments and environment are too long",
        _ => &error_text(cause),
    };
    let error = Error::exec(&shown, errno, reason);
    // The file was found: a component of its interpreter's path is not a directory.
    if errno == Errno::NOTDIR { error.with_kind(ErrorKind::NotExecutable) } else { error }
}
