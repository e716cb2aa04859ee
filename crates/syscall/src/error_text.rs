//! Texts of errno values: strerror(3).

use std::{ffi::CStr, io};

/// Longest text of an errno value, in bytes; that of glibc has at most 50.
const TEXT_MAX: usize = 256;

/// Returns the text of an error without its number, which [`io::Error`] appends: `No such file or directory`. Returns
/// the message of an error that is not an errno value unchanged.
pub fn error_text(error: &io::Error) -> String {
    error.raw_os_error().and_then(errno_text).unwrap_or_else(|| error.to_string())
}

/// `None` if the C library does not know the number.
fn errno_text(errno: i32) -> Option<String> {
    let mut text = [0u8; TEXT_MAX];
    // SAFETY: the call writes at most `text.len()` bytes into `text`, with the terminating zero. It is the variant of
    // POSIX: the C library's own, which may return another pointer, has another symbol (strerror(3)).
    let result = unsafe { libc::strerror_r(errno, text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    (result == 0).then(|| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::error_text;

    #[test]
    fn errors_have_the_text_of_the_c_library() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(error_text(&error), "No such file or directory");
        // Linux does not use 41 and 58.
        for errno in (1..134).filter(|errno| ![41, 58].contains(errno)) {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(format!("{} (os error {errno})", error_text(&error)), error.to_string());
        }
        assert_eq!(error_text(&io::Error::other("not an errno (os error 2)")), "not an errno (os error 2)");
    }
}
