//! What a single value must be.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    path::{Component, PathBuf},
    time::Duration,
};

use serde::Serializer;

use super::{
    super::logging,
    layers::{Value, What},
};

/// Longest path of a Unix socket: `sun_path` without its NUL (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Most namespaces that may wait in the pool: each costs about 220 KiB of kernel memory.
const POOL_MAX: u64 = 1024;
/// Longest name of an interface (IFNAMSIZ without its NUL).
const INTERFACE_MAX: usize = 15;
/// Longest name of a host, with its port.
const HOST_MAX: usize = 255;
/// Pieces of a log's line: shorter ones would be more prefix than text, longer ones do not fit into one batch.
const LOG_LINE: std::ops::RangeInclusive<u64> = 64..=65_535;
/// Outputs that ExecSync returns: what a probe says at least, and what a gRPC message holds at most.
const EXEC_OUTPUT: std::ops::RangeInclusive<u64> = 1024..=64 * 1024 * 1024;
/// The shortest and the longest time that a key may name.
const DURATION: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
/// Units of time, the longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Value {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> String {
        match &self.what {
            What::Text(_) => "it is a text",
            What::Integer(_) => "it is an integer",
            What::Float(_) => "it is a fraction",
            What::Boolean(_) => "it is a boolean",
            What::List(_) => "it is a list",
            What::Other(kind) => return format!("it is {kind}"),
        }
        .to_owned()
    }

    fn text(&self) -> Result<&str, String> {
        match &self.what {
            What::Text(text) => Ok(text),
            _ => Err(format!("{}, a text is expected", self.kind())),
        }
    }

    fn number(&self, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
        let What::Integer(number) = self.what else {
            return Err(format!("{}, an integer is expected", self.kind()));
        };
        let good = u64::try_from(number).ok().filter(|number| range.contains(number));
        good.ok_or_else(|| format!("{number} is not between {} and {}", range.start(), range.end()))
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
    match logging::filter(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(why) => Err(format!("{text:?} is not a level (error, warn, info, debug, trace; MODULE=LEVEL): {why}")),
    }
}

pub(super) fn one_of<T: Copy>(value: &Value, choices: &[(&str, T)]) -> Result<T, String> {
    let text = value.text()?;
    let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    chosen.ok_or_else(|| format!("{text:?} is none of {}", names()))
}

pub(super) fn interface(value: &Value) -> Result<String, String> {
    let name = value.text()?;
    let good = !name.is_empty() && name.len() <= INTERFACE_MAX && name != "." && name != "..";
    match good && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':') {
        true => Ok(name.to_owned()),
        false => Err(format!("{name:?} is not the name of an interface (1 to {INTERFACE_MAX} characters)")),
    }
}

/// Address and bits of a subnet.
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

pub(super) fn pool(value: &Value) -> Result<usize, String> {
    value.number(0..=POOL_MAX).map(|size| size as usize)
}

pub(super) fn log_line(value: &Value) -> Result<u32, String> {
    value.number(LOG_LINE).map(|length| length as u32)
}

pub(super) fn exec_output(value: &Value) -> Result<usize, String> {
    value.number(EXEC_OUTPUT).map(|length| length as usize)
}

pub(super) fn positive(value: &Value) -> Result<u64, String> {
    value.number(1..=i64::MAX.unsigned_abs())
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    match value.what {
        What::Boolean(yes) => Ok(yes),
        _ => Err(format!("{}, true or false is expected", value.kind())),
    }
}

pub(super) fn name(value: &Value) -> Result<String, String> {
    match value.text()? {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

pub(super) fn ratio(value: &Value) -> Result<f64, String> {
    let ratio = match value.what {
        What::Float(ratio) => ratio,
        What::Integer(0) => 0.0,
        What::Integer(1) => 1.0,
        What::Integer(other) => return Err(format!("{other} is not between 0 and 1")),
        _ => return Err(format!("{}, a fraction is expected", value.kind())),
    };
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err(format!("{ratio} is not between 0 and 1")) }
}

pub(super) fn address(value: &Value) -> Result<SocketAddr, String> {
    let text = value.text()?;
    text.parse().map_err(|_| format!("{text:?} is not an address with a port, as 127.0.0.1:9100 or [::1]:9100"))
}

/// Who may reach more than loopback may use what is not meant for them.
pub(super) fn loopback(value: &Value) -> Result<SocketAddr, String> {
    let address = address(value)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} is not a loopback address: kubelet alone, on this machine, asks there")),
    }
}

pub(super) fn host(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    match is_host(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a host or host:port")),
    }
}

/// As the image store takes it.
pub(super) fn is_host(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !text.is_empty() && text.len() <= HOST_MAX && text.chars().all(known)
}

/// The base of a registry; what follows its host is a path.
pub(super) fn url(value: &Value) -> Result<String, String> {
    let text = value.text()?;
    if text.contains('@') {
        // It is told to nobody: a password may be in it.
        return Err("no user or password may be in a URL".to_owned());
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let odd = |c: char| c.is_whitespace() || matches!(c, '?' | '#');
    match rest.is_some_and(|rest| rest.split('/').next().is_some_and(is_host) && !rest.contains(odd)) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a URL like https://mirror.example")),
    }
}

/// Where spans go: by gRPC over plain HTTP/2, at the root.
pub(super) fn collector(value: &Value) -> Result<String, String> {
    let url = url(value)?;
    let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    match host.is_some_and(|host| !host.contains('/')) {
        true => Ok(url),
        false => {
            Err(format!("{url:?} is not the address of a collector, as http://127.0.0.1:4317 (gRPC, without TLS)"))
        }
    }
}

/// `4h`, `90s`, `250ms`.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    let text = value.text()?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]);
    let whole =
        unit.and_then(|(_, unit)| Some(Duration::from_millis(text[..digits].parse::<u64>().ok()?.checked_mul(*unit)?)));
    match whole.filter(|whole| DURATION.contains(whole)) {
        Some(whole) => Ok(whole),
        None => Err(format!("{text:?} is not a time of 1ms to 30d, as 250ms, 90s, 15m, 4h")),
    }
}

/// In the largest unit that says it exactly.
pub(super) fn write_duration<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let whole = time.as_millis();
    let exact = UNITS.iter().find(|(_, unit)| whole > 0 && whole.is_multiple_of(u128::from(*unit)));
    let (name, unit) = exact.unwrap_or(&("ms", 1));
    to.collect_str(&format_args!("{}{name}", whole / u128::from(*unit)))
}

/// The empty text where it is unset.
pub(super) fn write_optional<T: ShownAsText, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(&value.shown()),
        None => to.serialize_str(""),
    }
}

/// What is written as a text.
pub(super) trait ShownAsText {
    /// As it is written.
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
