use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

use crate::Failure;

/// Longest name of a pod or container, bytes (a DNS subdomain's bound).
const NAME_MAX: usize = 253;
/// Longest path that the kernel takes, bytes.
const PATH_MAX: usize = 4096;
/// The kernel's HOST_NAME_MAX, bytes.
const HOSTNAME_MAX: usize = 64;

/// A name that may stand in a file name, a log line and a table.
pub(super) fn name(field: &str, value: &str) -> Result<String, Failure> {
    if value.is_empty() {
        return Err(Failure::invalid(field, "must not be empty"));
    }
    optional_name(field, value)
}

/// The same, but it may be missing.
pub(super) fn optional_name(field: &str, value: &str) -> Result<String, Failure> {
    if value.len() > NAME_MAX {
        return Err(Failure::invalid(field, format_args!("{} bytes long; at most {NAME_MAX}", value.len())));
    }
    if let Some(bad) = value.chars().find(|c| c.is_control() || *c == '/') {
        return Err(Failure::invalid(field, format_args!("{value:?} contains {bad:?}")));
    }
    Ok(value.to_owned())
}

/// A host name as `sethostname` takes it; dots and underscores are what people use.
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

/// Any text that must not end a C string.
pub(super) fn text(field: &str, value: &str) -> Result<String, Failure> {
    match value.contains('\0') {
        true => Err(Failure::invalid(field, "contains a NUL byte")),
        false => Ok(value.to_owned()),
    }
}

/// One word of a line: no blanks, no line ends.
pub(super) fn word(field: &str, value: &str) -> Result<String, Failure> {
    match value.is_empty() || value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        true => Err(Failure::invalid(field, format_args!("{value:?} is not one word"))),
        false => Ok(value.to_owned()),
    }
}

/// `/a/b`: absolute, without `..`, not too long.
pub(super) fn absolute_path(field: &str, value: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return Err(Failure::invalid(field, format_args!("{value:?} is not an absolute path")));
    }
    no_escape(field, value)
}

/// `/a/b`: absolute, resolved in the container, where `..` leads nowhere else; without `..` as far as it is told here.
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
    // What it was told with counts for its form.
    match value.starts_with('/') {
        true => absolute_path(field, &clean).map(|_| clean),
        false => Err(Failure::invalid(field, format_args!("{value:?} is not an absolute path"))),
    }
}

/// `a/b`: relative, without `..`, not too long.
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
        return Err(Failure::invalid(field, format_args!("{} bytes long; less than {PATH_MAX}", value.len())));
    }
    if value.contains('\0') {
        return Err(Failure::invalid(field, "contains a NUL byte"));
    }
    if path.components().any(|c| c == Component::ParentDir) {
        return Err(Failure::invalid(field, format_args!("{value:?} contains \"..\"")));
    }
    Ok(path.to_path_buf())
}

/// An IP address of either family.
pub(super) fn address(field: &str, value: &str) -> Result<IpAddr, Failure> {
    value.parse().map_err(|_| Failure::invalid(field, format_args!("{value:?} is not an IP address")))
}

/// The same, as a name server: one of a link has its zone behind it, as resolv.conf(5) of the node may have it.
pub(super) fn name_server(field: &str, value: &str) -> Result<(), Failure> {
    match value.split_once('%') {
        Some((ip, zone)) => {
            let good = ip.parse::<std::net::Ipv6Addr>().is_ok()
                && !zone.is_empty()
                && !zone.contains(|c: char| c.is_whitespace() || c.is_control());
            good.then_some(()).ok_or_else(|| Failure::invalid(field, format_args!("{value:?} is not an IP address")))
        }
        None => address(field, value).map(drop),
    }
}

/// A user or group id.
pub(super) fn id(field: &str, value: i64) -> Result<i64, Failure> {
    // 2^32 - 1 means "no change" to setresuid, so it is no id.
    match (0..i64::from(u32::MAX)).contains(&value) {
        true => Ok(value),
        false => Err(Failure::invalid(field, format_args!("{value} is not an id (0 to {})", u32::MAX - 1))),
    }
}

/// A member of an enum of the protocol.
pub(super) fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, Failure> {
    E::try_from(value).map_err(|_| Failure::invalid(field, format_args!("{value} is not a value of this enum")))
}

/// Labels and annotations.
pub(super) fn map(field: &str, values: HashMap<String, String>) -> Result<BTreeMap<String, String>, Failure> {
    if values.keys().any(String::is_empty) {
        return Err(Failure::invalid(field, "has an empty key"));
    }
    Ok(values.into_iter().collect())
}
