//! Strings of the spec that go to the kernel.

use std::ffi::CString;

use crate::Error;

/// Longest path the kernel takes, with its NUL.
const PATH_MAX: usize = 4096;

/// A string without NUL bytes.
pub(crate) fn c_string(field: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::invalid(format!("{field}: {text:?} has a NUL byte")))
}

/// An absolute path in the container: no NUL, bounded; `.` and empty parts dropped, and each `..` with the part before
/// it, as runc does. At the root `..` is the root.
pub(crate) fn inner_path(field: &str, path: &str) -> Result<CString, Error> {
    let wrong = |why: &str| Err(Error::invalid(format!("{field}: {path:?} {why}")));
    if !path.starts_with('/') {
        return wrong("is not absolute");
    }
    if path.len() >= PATH_MAX {
        return wrong("is longer than 4095 bytes");
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

/// Numbers less than `bound` in a list as `0-3,7`, which must have one.
pub(crate) fn number_list(field: &str, list: &str, bound: usize) -> Result<Vec<usize>, Error> {
    let wrong = || Error::invalid(format!("{field}: {list:?} is no list of numbers less than {bound}, as 0-3,7"));
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < bound).ok_or_else(wrong);
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(wrong());
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
            assert_eq!(inner_path("f", path).unwrap().to_str(), Ok(clean), "{path}");
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
