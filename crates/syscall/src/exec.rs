//! execve(2) with arguments that are prepared before the clone.

use std::{
    ffi::{CStr, CString, c_char},
    io, ptr,
};

use rustix::fd::{AsRawFd, BorrowedFd};

/// A NULL-terminated array of C strings for execve. It is created before the clone and used in the child without
/// allocation.
#[derive(Debug)]
pub struct StringArray {
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl StringArray {
    /// Creates an array from owned strings.
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { strings, pointers }
    }

    /// Returns the strings.
    pub fn strings(&self) -> &[CString] {
        &self.strings
    }

    /// Appends a string.
    pub fn push(&mut self, string: CString) {
        self.pointers.insert(self.strings.len(), string.as_ptr());
        self.strings.push(string);
    }
}

/// Executes a program; returns only an error.
pub fn execve(path: &CStr, arguments: &StringArray, environment: &StringArray) -> io::Error {
    // SAFETY: both arrays end with NULL and point to strings that live as long as the arrays; `path` is a C string.
    unsafe { libc::execve(path.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Executes an open file (`AT_EMPTY_PATH`, Linux 3.19); returns only an error.
pub fn execve_file(file: BorrowedFd<'_>, arguments: &StringArray, environment: &StringArray) -> io::Error {
    // SAFETY: as `execve`; the path is the empty C string and `file` is open.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}
