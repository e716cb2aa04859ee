//! Strings of the spec that go to the kernel.

use std::ffi::CString;

use crate::Error;

/// Longest path the kernel takes, with its NUL.
const PATH_MAX: usize = 4096;

/// A string without NUL bytes.
pub(crate) fn c_string(field: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::invalid(format!("{field}: {text:?} has a NUL byte")))
}

/// An absolute path in the container: no NUL, bounded; `.` and empty parts dropped, `..` refused.
pub(crate) fn inner_path(field: &str, path: &str) -> Result<CString, Error> {
    let wrong = |why: &str| Err(Error::invalid(format!("{field}: {path:?} {why}")));
    if !path.starts_with('/') {
        return wrong("is not absolute");
    }
    if path.len() >= PATH_MAX {
        return wrong("is longer than 4095 bytes");
    }
    if path.split('/').any(|part| part == "..") {
        return wrong("has a `..`");
    }
    let mut clean = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        clean.push('/');
        clean.push_str(part);
    }
    c_string(field, if clean.is_empty() { "/" } else { &clean })
}
