use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

use crate::Failure;

/// Maximum length of a pod's or container's name in bytes (that of a DNS subdomain).
const NAME_MAX: usize = 253;
/// Maximum length of a path in bytes, including the final NUL.
const PATH_MAX: usize = 4096;
/// The kernel's HOST_NAME_MAX in bytes.
const HOSTNAME_MAX: usize = 64;

/// Validates a name that can be used in a file name, a log line and a table.
pub(super) fn name(field: &str, value: &str) -> Result<String, Failure> {
    if value.is_empty() {
        return Err(Failure::invalid(field, "must not be empty"));
    }
    optional_name(field, value)
}

/// Like [`name`], but allows an empty name.
pub(super) fn optional_name(field: &str, value: &str) -> Result<String, Failure> {
    if value.len() > NAME_MAX {
        return Err(Failure::invalid(field, format_args!("{} bytes long; at most {NAME_MAX}", value.len())));
    }
    if let Some(bad) = value.chars().find(|c| c.is_control() || *c == '/') {
        return Err(Failure::invalid(field, format_args!("{value:?} contains {bad:?}")));
    }
    Ok(value.to_owned())
}

/// Validates a host name: letters, digits, hyphens, and the dots and underscores that are common in practice.
pub(super) fn hostname(field: &str, value: &str) -> Result<String, Failure> {
    if value.len() > HOSTNAME_MAX {
        return Err(Failure::invalid(
            field,
            format_args!("{value:?} is {} bytes long; at most {HOSTNAME_MAX}", value.len()),
        ));
    }
    match value.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.' | '_')) {
        Some(bad) => Err(Failure::invalid(
            field,
            format_args!("{value:?} contains {bad:?}; letters, digits, '-', '.' and '_' only"),
        )),
        None => Ok(value.to_owned()),
    }
}

/// Validates a string that becomes a C string.
pub(super) fn text(field: &str, value: &str) -> Result<String, Failure> {
    match value.contains('\0') {
        true => Err(Failure::invalid(field, "contains a NUL byte")),
        false => Ok(value.to_owned()),
    }
}

/// Validates a string without whitespace and control characters.
pub(super) fn word(field: &str, value: &str) -> Result<String, Failure> {
    match value.is_empty() || value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        true => Err(Failure::invalid(field, format_args!("{value:?} is empty or contains whitespace"))),
        false => Ok(value.to_owned()),
    }
}

/// Validates an absolute path without `..` that is not too long: `/a/b`.
pub(crate) fn absolute_path(field: &str, value: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return Err(Failure::invalid(field, format_args!("{value:?} is not an absolute path")));
    }
    no_escape(field, value)
}

/// Validates an absolute path in the container. `..` is resolved lexically, because it cannot leave the container's
/// root: `/a/../b` → `/b`.
pub(super) fn path_inside(field: &str, value: &str) -> Result<String, Failure> {
    let mut parts: Vec<&str> = Vec::new();
    for part in value.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let clean = match value.split('/').any(|part| part == "..") {
        true => format!("/{}", parts.join("/").trim_start_matches('/')),
        false => value.to_owned(),
    };
    // Only the original value shows whether the path is absolute.
    match value.starts_with('/') {
        true => absolute_path(field, &clean).map(|_| clean),
        false => Err(Failure::invalid(field, format_args!("{value:?} is not an absolute path"))),
    }
}

/// Validates a relative path without `..` that is not too long: `a/b`.
pub(super) fn relative_path(field: &str, value: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(value);
    if path.is_absolute() {
        return Err(Failure::invalid(field, format_args!("{value:?} is not a relative path")));
    }
    no_escape(field, value)
}

fn no_escape(field: &str, value: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(value);
    if value.len() >= PATH_MAX {
        return Err(Failure::invalid(field, format_args!("{} bytes long; must be less than {PATH_MAX}", value.len())));
    }
    if value.contains('\0') {
        return Err(Failure::invalid(field, "contains a NUL byte"));
    }
    if path.components().any(|c| c == Component::ParentDir) {
        return Err(Failure::invalid(field, format_args!("{value:?} contains \"..\"")));
    }
    Ok(path.to_path_buf())
}

/// Parses an IPv4 or IPv6 address.
pub(super) fn address(field: &str, value: &str) -> Result<IpAddr, Failure> {
    value.parse().map_err(|_| Failure::invalid(field, format_args!("{value:?} is not an IP address")))
}

/// Validates the address of a name server. A link-local address may have a zone (`fe80::1%eth0`), which the node's
/// resolv.conf(5) can contain.
pub(super) fn name_server(field: &str, value: &str) -> Result<(), Failure> {
    match value.split_once('%') {
        Some((ip, zone)) => {
            let valid = ip.parse::<std::net::Ipv6Addr>().is_ok()
                && !zone.is_empty()
                && !zone.contains(|c: char| c.is_whitespace() || c.is_control());
            valid.then_some(()).ok_or_else(|| Failure::invalid(field, format_args!("{value:?} is not an IP address")))
        }
        None => address(field, value).map(drop),
    }
}

/// Validates a user or group id.
pub(super) fn id(field: &str, value: i64) -> Result<i64, Failure> {
    // 2^32 - 1 means "no change" to setresuid(2), so it is not a valid id.
    match (0..i64::from(u32::MAX)).contains(&value) {
        true => Ok(value),
        false => Err(Failure::invalid(field, format_args!("{value} is not an id (0 to {})", u32::MAX - 1))),
    }
}

/// Converts a value of an enum of the protocol.
pub(super) fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, Failure> {
    E::try_from(value).map_err(|_| Failure::invalid(field, format_args!("{value} is not a value of this enum")))
}

/// Validates labels or annotations.
pub(super) fn map(field: &str, values: HashMap<String, String>) -> Result<BTreeMap<String, String>, Failure> {
    if values.keys().any(String::is_empty) {
        return Err(Failure::invalid(field, "has an empty key"));
    }
    Ok(values.into_iter().collect())
}
