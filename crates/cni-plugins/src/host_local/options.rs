//! Options of `host-local`: its section of the configuration, and addresses and ranges that the engine requests.

use std::{
    fs::File,
    io::Read,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rtnl::subnet::Subnet;
use serde::Deserialize;
use serde_json::Value;

use super::{Leases, Range};
use crate::{Error, Request, Route, result::Dns};

/// Directory of leases unless the configuration names another one.
const DIRECTORY: &str = "/var/lib/cni/networks";
/// Most sets of ranges, and ranges of a set.
const RANGES_MAX: usize = 64;
/// Longest resolv.conf that is read, in bytes.
const RESOLV_CONF_MAX: u64 = 64 << 10;

/// Parsed options.
#[derive(Debug)]
pub(super) struct Options {
    network: String,
    pub(super) sets: Vec<Vec<Range>>,
    pub(super) routes: Vec<Route>,
    /// Addresses that the engine requests.
    pub(super) requested: Vec<IpAddr>,
    directory: PathBuf,
    resolv_conf: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRange {
    subnet: Subnet,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    subnet: Option<Subnet>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
    #[serde(default)]
    ranges: Vec<Vec<RawRange>>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    data_dir: String,
    #[serde(default)]
    resolv_conf: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Runtime {
    ip_ranges: Vec<Vec<RawRange>>,
    ips: Vec<String>,
}

impl RawRange {
    fn parse(&self) -> Result<Range, Error> {
        let invalid = |reason: String| Error::config("ipam.ranges", reason);
        let range = Range::new(self.subnet, self.range_start, self.range_end, self.gateway).map_err(invalid)?;
        if !range.subnet.contains(range.gateway) {
            return Err(invalid(format!("gateway {} is not in subnet {}", range.gateway, range.subnet)));
        }
        Ok(range)
    }
}

impl Options {
    pub(super) fn parse(request: &Request) -> Result<Self, Error> {
        let section = request.config.get("ipam").cloned().ok_or_else(|| Error::config("ipam", "missing"))?;
        let raw: Raw = serde_json::from_value(section).map_err(|e| Error::config("ipam", e.to_string()))?;
        let runtime =
            request.config.get("runtimeConfig").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let runtime: Runtime =
            serde_json::from_value(runtime).map_err(|e| Error::config("runtimeConfig", e.to_string()))?;
        let single = raw.subnet.map(|subnet| {
            let (range_start, range_end, gateway) = (raw.range_start, raw.range_end, raw.gateway);
            vec![RawRange { subnet, range_start, range_end, gateway }]
        });
        let all: Vec<Vec<RawRange>> = runtime.ip_ranges.into_iter().chain(single).chain(raw.ranges).collect();
        let optional = |path: String| (!path.is_empty()).then(|| PathBuf::from(path));
        Ok(Self {
            network: request.network.clone(),
            sets: sets(&all)?,
            routes: raw.routes,
            requested: requested(request, &runtime.ips)?,
            directory: optional(raw.data_dir).unwrap_or_else(|| DIRECTORY.into()).join(&request.network),
            resolv_conf: optional(raw.resolv_conf),
        })
    }

    pub(super) fn open(&self) -> Result<Leases, Error> {
        Leases::open(&self.network, &self.directory)
    }

    /// Returns the name servers of the file that the configuration names.
    pub(super) fn dns(&self) -> Result<Dns, Error> {
        let Some(path) = &self.resolv_conf else { return Ok(Dns::default()) };
        read(path).map(|text| parse_resolv_conf(&text)).map_err(|e| Error::path("read", path, e))
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(RESOLV_CONF_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn sets(all: &[Vec<RawRange>]) -> Result<Vec<Vec<Range>>, Error> {
    let invalid = |reason: String| Error::config("ipam.ranges", reason);
    if all.is_empty() || all.iter().any(Vec::is_empty) {
        return Err(invalid("no address ranges are configured".into()));
    }
    if all.len() > RANGES_MAX || all.iter().any(|set| set.len() > RANGES_MAX) {
        return Err(invalid(format!("more than {RANGES_MAX} ranges")));
    }
    let parse = |set: &Vec<RawRange>| set.iter().map(RawRange::parse).collect::<Result<Vec<_>, _>>();
    let sets = all.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let flat: Vec<&Range> = sets.iter().flatten().collect();
    for (at, range) in flat.iter().enumerate() {
        if let Some(other) = flat[..at].iter().find(|other| overlap(other, range)) {
            return Err(invalid(format!("{} and {} overlap", other.subnet, range.subnet)));
        }
    }
    for set in &sets {
        if set.iter().any(|range| range.subnet.address.is_ipv4() != set[0].subnet.address.is_ipv4()) {
            return Err(invalid("a set has ranges of IPv4 and of IPv6".into()));
        }
    }
    Ok(sets)
}

fn overlap(one: &Range, other: &Range) -> bool {
    one.contains(other.first) || one.contains(other.last) || other.contains(one.first)
}

/// Returns the addresses that `CNI_ARGS`, `args` and `runtimeConfig` name.
fn requested(request: &Request, runtime: &[String]) -> Result<Vec<IpAddr>, Error> {
    let args = request.config.get("args").and_then(|args| args.get("cni")).and_then(|cni| cni.get("ips"));
    let args = args.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let texts = request.arguments.get("IP").into_iter().chain(args).chain(runtime.iter().map(String::as_str));
    let parse = |text: &str| {
        let address = text.split('/').next().unwrap_or_default();
        address.parse().map_err(|_| Error::config("ips", format!("{text:?} is not an address")))
    };
    texts.map(parse).collect()
}

fn parse_resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or(dns.domain),
            Some("search") => dns.search.extend(words),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(ipam: &Value, runtime: &Value) -> Result<Options, String> {
        let config =
            json!({"cniVersion": "1.0.0", "name": "n", "type": "host-local", "ipam": ipam, "runtimeConfig": runtime});
        Options::parse(&Request::new(config).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn ranges_of_the_engine_are_first() {
        let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24", "ranges": [[{"subnet": "fd00::/64"}]]});
        let runtime = json!({"ipRanges": [[{"subnet": "10.9.0.0/24"}]], "ips": ["10.9.0.7/24", "10.1.0.8"]});
        let options = parse(&ipam, &runtime).unwrap();
        let subnets: Vec<String> = options.sets.iter().map(|set| set[0].subnet.to_string()).collect();
        assert_eq!(subnets, ["10.9.0.0/24", "10.1.0.0/24", "fd00::/64"]);
        assert_eq!(options.requested.len(), 2);
        assert_eq!(options.directory, Path::new("/var/lib/cni/networks/n"));
    }

    #[test]
    fn invalid_ranges_are_refused() {
        let range = |text: &str| json!({"subnet": text});
        for (ranges, expected) in [
            (json!([]), "no address ranges"),
            (json!([[]]), "no address ranges"),
            (json!([[range("10.1.0.0/24"), range("fd00::/64")]]), "IPv4 and of IPv6"),
            (json!([[range("10.1.0.0/24")], [range("10.1.0.0/16")]]), "overlap"),
            (json!([[{"subnet": "10.1.0.0/24", "gateway": "10.2.0.1"}]]), "not in subnet"),
            (json!([[range("10.1.0.0/31")]]), "too small"),
        ] {
            let error = parse(&json!({"ranges": ranges}), &json!({})).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_resolv_conf_is_parsed() {
        let text = "# x\nnameserver 10.0.0.1 x\nsearch a b\n;y\noptions ndots:5\ndomain c\nnameserver\n";
        let dns = parse_resolv_conf(text);
        assert_eq!((dns.nameservers, dns.domain.as_str()), (vec!["10.0.0.1".to_owned()], "c"));
        assert_eq!((dns.search.len(), dns.options.len()), (2, 1));
    }
}
