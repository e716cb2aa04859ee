//! Addresses of pods on the built-in bridge: the `ipam` section of a CNI configuration.

use std::{net::IpAddr, path::PathBuf};

use rtnl::subnet::Subnet;
use serde::Deserialize;

pub(crate) use cni_plugins::host_local::{Leases, Range};

/// Configuration of address allocation: a pod gets one address from each set of ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostLocal {
    pub(crate) sets: Vec<Vec<Range>>,
    pub(crate) routes: Vec<Route>,
    pub(crate) data_dir: Option<PathBuf>,
}

/// A route of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) dst: Subnet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gw: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRange {
    subnet: Subnet,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

impl RawRange {
    fn range(&self) -> Result<Range, String> {
        Range::new(self.subnet, self.range_start, self.range_end, self.gateway)
    }
}

/// The `ipam` section; an unknown key makes the configuration one for the plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawHostLocal {
    #[serde(rename = "type")]
    _kind: String,
    subnet: Option<Subnet>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
    #[serde(default)]
    ranges: Vec<Vec<RawRange>>,
    #[serde(default)]
    routes: Vec<Route>,
    data_dir: Option<PathBuf>,
}

impl HostLocal {
    /// Parses an `ipam` section; `None` if it has a key that only the plugin supports.
    pub(crate) fn parse(ipam: &serde_json::Value) -> Option<Result<Self, String>> {
        let raw: RawHostLocal = serde_json::from_value(ipam.clone()).ok()?;
        Some(Self::from_raw(raw))
    }

    fn from_raw(raw: RawHostLocal) -> Result<Self, String> {
        let mut sets = Vec::new();
        if let Some(subnet) = raw.subnet {
            sets.push(vec![Range::new(subnet, raw.range_start, raw.range_end, raw.gateway)?]);
        }
        for set in raw.ranges {
            sets.push(set.iter().map(RawRange::range).collect::<Result<Vec<_>, _>>()?);
        }
        if sets.is_empty() || sets.iter().any(Vec::is_empty) {
            return Err("ipam: no address ranges are configured".into());
        }
        Ok(Self { sets, routes: raw.routes, data_dir: raw.data_dir })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_formats_of_ranges_are_parsed() {
        let old = HostLocal::parse(&json!({"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9"}));
        let old = old.unwrap().unwrap();
        assert_eq!(old.sets[0][0].first.to_string(), "10.1.0.9");
        assert_eq!(old.sets[0][0].gateway.to_string(), "10.1.0.1");
        let new = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}]});
        assert_eq!(HostLocal::parse(&new).unwrap().unwrap().sets.len(), 2);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for bad in ["10.1.0.0/31", "10.1.0.7/24"] {
            assert!(HostLocal::parse(&json!({"type": "host-local", "subnet": bad})).unwrap().is_err(), "{bad}");
        }
        assert!(HostLocal::parse(&json!({"type": "host-local"})).unwrap().is_err());
        assert!(
            HostLocal::parse(&json!({"type": "host-local", "subnet": "10.1.0.0/24", "resolvConf": "/x"})).is_none()
        );
    }
}
