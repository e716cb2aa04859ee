//! Checks of single values.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    path::{Component, PathBuf},
    time::Duration,
};

use serde::Serializer;

use super::{
    super::log_filter,
    layers::{Data, Value},
};

/// Maximum length of the path of a Unix socket: `sun_path` without its NUL (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Maximum size of the pool of network namespaces: each costs about 220 KiB of kernel memory.
const POOL_MAX: u64 = 1024;
/// Maximum length of an interface name (IFNAMSIZ without its NUL).
const INTERFACE_MAX: usize = 15;
/// Maximum length of a host name with its port.
const HOST_MAX: usize = 255;
/// Bounds of the length of a log entry: a shorter one would be mostly prefix, a longer one does not fit into one batch.
const LOG_LINE: std::ops::RangeInclusive<u64> = 64..=65_535;
/// Sizes of a container log at which it is replaced, in bytes. CRI-O refuses smaller ones, too.
const LOG_SIZE: std::ops::RangeInclusive<u64> = 8192..=1 << 50;
/// Bounds of the output of ExecSync: enough for a probe, and the maximum size of a gRPC message.
const EXEC_OUTPUT: std::ops::RangeInclusive<u64> = 1024..=64 * 1024 * 1024;
/// Bounds of durations.
const DURATION: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
/// Units of time, the longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Value {
    /// Returns the type of the value for error messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Text(_) => "a string",
            Data::Integer(_) => "an integer",
            Data::Float(_) => "a float",
            Data::Boolean(_) => "a boolean",
            Data::List(_) => "an array",
            Data::Other(kind) => kind,
        }
    }

    fn text(&self) -> Result<&str, String> {
        match &self.data {
            Data::Text(text) => Ok(text),
            _ => Err(format!("must be a string, is {}", self.kind())),
        }
    }

    fn number(&self, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
        let Data::Integer(number) = self.data else {
            return Err(format!("must be an integer, is {}", self.kind()));
        };
        let valid = u64::try_from(number).ok().filter(|number| range.contains(number));
        valid.ok_or_else(|| format!("{number} is not between {} and {}", range.start(), range.end()))
    }
}

pub(super) fn absolute(value: &Value) -> Result<PathBuf, String> {
    let path = PathBuf::from(value.text()?);
    match path.is_absolute() && !path.components().any(|c| c == Component::ParentDir) {
        true => Ok(path),
        false => Err(format!("{path:?} is not an absolute path without \"..\"")),
    }
}

pub(super) fn socket(value: &Value) -> Result<PathBuf, String> {
    let path = absolute(value)?;
    match path.as_os_str().len() > SOCKET_PATH_MAX {
        true => Err(format!("{path:?} is longer than the {SOCKET_PATH_MAX} bytes of a Unix socket's path")),
        false => Ok(path),
    }
}

pub(super) fn group(value: &Value) -> Result<String, String> {
    absolute(value)?;
    value.text().map(str::to_owned)
}

pub(super) fn level(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    match log_filter::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(cause) => Err(format!("{text:?} is not a level (error, warn, info, debug, trace; MODULE=LEVEL): {cause}")),
    }
}

pub(super) fn one_of<T: Copy>(value: &Value, choices: &[(&str, T)]) -> Result<T, String> {
    let text = value.text()?;
    let choice = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    choice.ok_or_else(|| format!("{text:?} is not one of {}", names()))
}

pub(super) fn interface(value: &Value) -> Result<String, String> {
    let name = value.text()?;
    let is_valid = !name.is_empty() && name.len() <= INTERFACE_MAX && name != "." && name != "..";
    match is_valid && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':') {
        true => Ok(name.to_owned()),
        false => Err(format!("{name:?} is not an interface name (1 to {INTERFACE_MAX} characters)")),
    }
}

/// Returns the name of a CNI network, or `*` for all.
pub(super) fn network_name(value: &Value) -> Result<String, String> {
    let name = value.text()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let is_valid = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(plain);
    match is_valid || name == "*" {
        true => Ok(name.to_owned()),
        false => Err(format!("{name:?} is neither the name of a network nor \"*\"")),
    }
}

/// Parses the address and prefix length of a subnet.
pub(super) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    Some((address.parse().ok()?, bits.parse().ok()?))
}

pub(super) fn subnet(value: &Value, six: bool) -> Result<String, String> {
    let text = value.text()?;
    let (kind, longest) = if six { ("IPv6", 126) } else { ("IPv4", 30) };
    match network(text) {
        Some((ip, bits)) if ip.is_ipv6() == six && (8..=longest).contains(&bits) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not an {kind} subnet (address/bits, 8 to {longest} bits)")),
    }
}

/// Returns a pool such as `172.18.0.0/15:16`: a subnet, and the prefix length of its parts.
pub(super) fn address_pool(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    let parts = text.rsplit_once('/').and_then(|(_, bits)| bits.split_once(':'));
    let pool = parts.and_then(|(_, size)| {
        let (address, bits) = network(text.get(..text.len() - size.len() - 1)?)?;
        let longest = if address.is_ipv4() { 30 } else { 126 };
        size.parse::<u8>().ok().filter(|size| (bits..=longest).contains(size))
    });
    match pool {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err(format!("{text:?} is not a pool such as \"172.18.0.0/15:16\": a subnet, and the bits of its parts"))
        }
    }
}

pub(super) fn ip(value: &Value) -> Result<IpAddr, String> {
    let text = value.text()?;
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

/// Returns a prefix of keys in etcd.
pub(super) fn key_prefix(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    match text.starts_with('/') && !text.trim_end_matches('/').is_empty() && !text.chars().any(char::is_control) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(format!("{text:?} is not a path such as \"/pinion/overlay\"")),
    }
}

/// Checks that an integer is within bounds.
pub(super) fn number(value: &Value, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    value.number(range)
}

pub(super) fn pool(value: &Value) -> Result<usize, String> {
    value.number(0..=POOL_MAX).map(|size| size as usize)
}

pub(super) fn log_line(value: &Value) -> Result<u32, String> {
    value.number(LOG_LINE).map(|length| length as u32)
}

pub(super) fn log_size(value: &Value) -> Result<u64, String> {
    match value.number(0..=*LOG_SIZE.end())? {
        0 => Ok(0),
        _ => value.number(LOG_SIZE).map_err(|error| format!("{error}; 0: unlimited")),
    }
}

pub(super) fn exec_output(value: &Value) -> Result<usize, String> {
    value.number(EXEC_OUTPUT).map(|length| length as usize)
}

pub(super) fn positive(value: &Value) -> Result<u64, String> {
    value.number(1..=i64::MAX.unsigned_abs())
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    match value.data {
        Data::Boolean(flag) => Ok(flag),
        _ => Err(format!("must be true or false, is {}", value.kind())),
    }
}

pub(super) fn name(value: &Value) -> Result<String, String> {
    match value.text()? {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// Reads the name of an annotation, or a prefix that ends with `*`.
pub(super) fn annotation(value: &Value) -> Result<String, String> {
    let text = name(value)?;
    match text.strip_suffix('*').unwrap_or(&text).contains('*') {
        true => Err(format!("{text:?} has a * that is not at its end")),
        false => Ok(text),
    }
}

pub(super) fn ratio(value: &Value) -> Result<f64, String> {
    let ratio = match value.data {
        Data::Float(ratio) => ratio,
        Data::Integer(0) => 0.0,
        Data::Integer(1) => 1.0,
        Data::Integer(other) => return Err(format!("{other} is not between 0 and 1")),
        _ => return Err(format!("must be a number from 0 to 1, is {}", value.kind())),
    };
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err(format!("{ratio} is not between 0 and 1")) }
}

pub(super) fn address(value: &Value) -> Result<SocketAddr, String> {
    let text = value.text()?;
    text.parse().map_err(|_| format!("{text:?} is not an address with a port, such as 127.0.0.1:9100 or [::1]:9100"))
}

/// Checks that an address is a loopback one: other machines must not reach the streaming server.
pub(super) fn loopback(value: &Value) -> Result<SocketAddr, String> {
    let address = address(value)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} is not a loopback address; only the kubelet on this machine may connect")),
    }
}

pub(super) fn host(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    match is_host(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a host or host:port")),
    }
}

/// Whether the image store accepts the text as a registry host, optionally with a port.
pub(super) fn is_host(text: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !text.is_empty() && text.len() <= HOST_MAX && text.chars().all(is_valid)
}

/// Checks the base URL of a registry: scheme and host, optionally with a path.
pub(super) fn url(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    if text.contains('@') {
        // The message must not contain the URL, which may contain a password.
        return Err("a URL must not contain a user or password".to_owned());
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_refused = |c: char| c.is_whitespace() || matches!(c, '?' | '#');
    match rest.is_some_and(|rest| rest.split('/').next().is_some_and(is_host) && !rest.contains(is_refused)) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a URL like https://mirror.example")),
    }
}

/// Checks the URL of a collector: gRPC over plain HTTP/2, without a path.
pub(super) fn collector(value: &Value) -> Result<String, String> {
    let url = url(value)?;
    let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    match host.is_some_and(|host| !host.contains('/')) {
        true => Ok(url),
        false => {
            Err(format!("{url:?} is not the URL of a collector, such as http://127.0.0.1:4317 (gRPC without TLS)"))
        }
    }
}

/// Parses a duration such as `4h`, `90s` or `250ms`.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    let text = value.text()?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]);
    let duration =
        unit.and_then(|(_, unit)| Some(Duration::from_millis(text[..digits].parse::<u64>().ok()?.checked_mul(*unit)?)));
    match duration.filter(|duration| DURATION.contains(duration)) {
        Some(duration) => Ok(duration),
        None => Err(format!("{text:?} is not a duration from 1ms to 30d, such as 250ms, 90s, 15m or 4h")),
    }
}

/// Serializes a duration in the largest unit in which it is a whole number.
pub(super) fn write_duration<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let millis = time.as_millis();
    let exact = UNITS.iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(u128::from(*unit)));
    let (name, unit) = exact.unwrap_or(&("ms", 1));
    to.collect_str(&format_args!("{}{name}", millis / u128::from(*unit)))
}

/// Serializes an unset value as an empty string.
pub(super) fn write_optional<T: ShownAsText, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(&value.shown()),
        None => to.serialize_str(""),
    }
}

/// A type that is serialized as a string.
pub(super) trait ShownAsText {
    /// Returns the string.
    fn shown(&self) -> impl Display;
}

impl ShownAsText for SocketAddr {
    fn shown(&self) -> impl Display {
        self
    }
}

impl ShownAsText for String {
    fn shown(&self) -> impl Display {
        self
    }
}

impl ShownAsText for PathBuf {
    fn shown(&self) -> impl Display {
        self.display()
    }
}
