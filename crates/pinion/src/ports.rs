//! Parser for the option `-p` of `pinion run`.

use std::{fmt, net::IpAddr, str::FromStr};

use cri_proto::v1;

/// Maximum number of ports in the range of one `-p`.
const RANGE_MAX: u16 = 1024;

/// One published port or a range of them: `8080:80`, `127.0.0.1:8080:80/udp`, `[::1]:8080:80`, `8000-8003:9000-9003`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publish {
    host_ip: Option<IpAddr>,
    host: u16,
    container: u16,
    count: u16,
    protocol: v1::Protocol,
}

impl Publish {
    /// Returns a CRI message for each port.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = v1::PortMapping> + '_ {
        (0..self.count).map(|n| v1::PortMapping {
            protocol: self.protocol.into(),
            container_port: i32::from(self.container + n),
            host_port: i32::from(self.host + n),
            host_ip: self.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
        })
    }
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, protocol)) => (rest, protocol_of(protocol)?),
            None => (text, v1::Protocol::Tcp),
        };
        let invalid = || format!("{text:?} is not [ADDRESS:]HOSTPORT:PORT[/tcp|udp|sctp]");
        let (host_part, container) = rest.rsplit_once(':').ok_or_else(invalid)?;
        let (host_ip, host) = match host_part.rsplit_once(':') {
            Some((ip, host)) => {
                let ip = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
                (Some(ip.parse().map_err(|_| format!("{ip:?} in {text:?} is not an IP address"))?), host)
            }
            None => (None, host_part),
        };
        let ((host, count), (container, container_count)) =
            (range(host).ok_or_else(invalid)?, range(container).ok_or_else(invalid)?);
        match count == container_count {
            true => Ok(Self { host_ip, host, container, count, protocol }),
            false => Err(format!("{text:?}: the ranges differ in length ({count} and {container_count})")),
        }
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ip) = self.host_ip {
            write!(f, "{}:", if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() })?;
        }
        let span =
            |first: u16| if self.count > 1 { format!("{first}-{}", first + self.count - 1) } else { first.to_string() };
        write!(f, "{}->{}/{}", span(self.host), span(self.container), self.protocol.as_str_name().to_lowercase())
    }
}

fn protocol_of(text: &str) -> Result<v1::Protocol, String> {
    v1::Protocol::from_str_name(&text.to_uppercase()).ok_or_else(|| format!("{text:?} is not tcp, udp or sctp"))
}

/// Returns the first port of a range and the number of ports.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?),
        None => {
            let port = text.parse().ok()?;
            (port, port)
        }
    };
    let count = last.checked_sub(first)?.checked_add(1)?;
    (first > 0 && count <= RANGE_MAX).then_some((first, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displayed(text: &str) -> String {
        text.parse::<Publish>().expect("valid").to_string()
    }

    #[test]
    fn common_forms_are_accepted() {
        assert_eq!(displayed("8080:80"), "8080->80/tcp");
        assert_eq!(displayed("127.0.0.1:53:53/udp"), "127.0.0.1:53->53/udp");
        assert_eq!(displayed("[::1]:80:80"), "[::1]:80->80/tcp");
        assert_eq!(displayed("8000-8002:9000-9002"), "8000-8002->9000-9002/tcp");
        let mapped: Vec<_> = "8000-8001:90-91"
            .parse::<Publish>()
            .expect("valid")
            .mappings()
            .map(|m| (m.host_port, m.container_port))
            .collect();
        assert_eq!(mapped, [(8000, 90), (8001, 91)]);
    }

    #[test]
    fn invalid_forms_are_refused() {
        for invalid in
            ["", "80", "0:80", "x:80", "80:80/icmp", "1-3:1-2", "3-1:3-1", "host:80:80", "70000:80", "1-60000:1-60000"]
        {
            assert!(invalid.parse::<Publish>().is_err(), "{invalid}");
        }
    }
}
