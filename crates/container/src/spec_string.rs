//! Strings of the spec that are passed to the kernel.

use std::ffi::CString;

use crate::Error;

/// Maximum length of a path in bytes, with its NUL.
const PATH_MAX: usize = 4096;

/// Converts a string, which must not contain NUL bytes, to a C string.
pub(crate) fn c_string(field: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::invalid(format!("{field}: {text:?} has a NUL byte")))
}

/// Checks and normalises an absolute path in the container. Like runc, it removes `.`, empty components, and each `..`
/// together with the component before it; `..` at the root is the root. The path must have no NUL byte and at most 4095
/// bytes.
pub(crate) fn container_path(field: &str, path: &str) -> Result<CString, Error> {
    let invalid = |reason: &str| Err(Error::invalid(format!("{field}: {path:?} {reason}")));
    if !path.starts_with('/') {
        return invalid("is not absolute");
    }
    if path.len() >= PATH_MAX {
        return invalid("is longer than 4095 bytes");
    }
    let mut clean = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            clean.truncate(clean.rfind('/').unwrap_or(0));
            continue;
        }
        clean.push('/');
        clean.push_str(part);
    }
    c_string(field, if clean.is_empty() { "/" } else { &clean })
}

/// Parses a list of numbers less than `bound`, for example `0-3,7`, which must not be empty.
pub(crate) fn number_list(field: &str, list: &str, bound: usize) -> Result<Vec<usize>, Error> {
    let invalid =
        || Error::invalid(format!("{field}: {list:?} is not a list of numbers less than {bound}, such as 0-3,7"));
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < bound).ok_or_else(invalid);
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(invalid());
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for (path, clean) in
            [("/a/../../b", "/b"), ("/..", "/"), ("/a/b/..//./c/", "/a/c"), ("/a/..", "/"), ("/...", "/...")]
        {
            assert_eq!(container_path("f", path).unwrap().to_str(), Ok(clean), "{path}");
        }
    }

    #[test]
    fn lists_of_numbers() {
        assert_eq!(number_list("f", "0-2,5", 8).unwrap(), [0, 1, 2, 5]);
        for wrong in ["", "3-1", "8", "a", "1,,2", "-1"] {
            assert!(number_list("f", wrong, 8).is_err(), "{wrong:?}");
        }
    }
}
