//! The list of sysctls that a node permits: regular expressions, one in each line. Without the file all are permitted.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use regex_lite::Regex;

use crate::Error;

const FILE: &str = "/etc/cni/tuning/allowlist.conf";
/// Longest list that is read, in bytes.
const LENGTH_MAX: u64 = 64 << 10;

/// Reports an error if a key is not permitted.
pub(super) fn check<'a>(keys: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let path = Path::new(FILE);
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(LENGTH_MAX).read_to_string(&mut text)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|e| Error::path("read", path, e))?,
    };
    let parse = |line: &str| Regex::new(line).map_err(|e| Error::config(FILE, format!("{line:?}: {e}")));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let permitted = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
    for key in keys {
        if !permitted.iter().any(|expression| expression.is_match(key)) {
            return Err(Error::config("sysctl", format!("{key} is not permitted by {FILE}")));
        }
    }
    Ok(())
}
