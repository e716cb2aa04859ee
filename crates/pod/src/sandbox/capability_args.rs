//! Capability arguments of CNI plugins (CNI's CONVENTIONS.md), under the names that containerd and CRI-O pass them.

use std::collections::BTreeMap;

use network::NetworkSelection;
use serde_json::{Value, json};

use crate::{Error, SandboxConfig, annotation};

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// Bounds of a rate in bits per second, as in Kubernetes.
const RATE: std::ops::RangeInclusive<f64> = 1e3..=1e15;
/// Burst in bits, as containerd sets it: no limit for traffic that comes in bursts.
const BURST: u64 = u32::MAX as u64;

/// Returns the arguments for a pod; the plugins that declare a capability get its argument.
pub(super) fn capability_args(config: &SandboxConfig) -> Result<BTreeMap<String, Value>, Error> {
    let mut args = BTreeMap::new();
    args.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(config.annotations));
    if let Some(dns) = &config.dns {
        let dns = json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options});
        args.insert("dns".to_owned(), dns);
    }
    if let Some(parent) = &config.cgroup_parent {
        args.insert("cgroupPath".to_owned(), json!(parent));
    }
    let mut bandwidth = serde_json::Map::new();
    for (annotation, name) in [(INGRESS, "ingress"), (EGRESS, "egress")] {
        let Some(text) = config.annotations.get(annotation) else { continue };
        let rate = quantity(text).filter(|rate| RATE.contains(rate)).ok_or_else(|| {
            Error::invalid(format!("annotation {annotation}: {text:?} is not a rate from 1k to 1P, such as 10M"))
        })?;
        bandwidth.insert(format!("{name}Rate"), json!(rate.ceil() as u64));
        bandwidth.insert(format!("{name}Burst"), json!(BURST));
    }
    if !bandwidth.is_empty() {
        args.insert("bandwidth".to_owned(), Value::Object(bandwidth));
    }
    Ok(args)
}

/// Returns what a pod requests of its primary network.
pub(super) fn primary_network(config: &SandboxConfig) -> Result<Option<NetworkSelection>, Error> {
    let Some(value) = config.annotations.get(annotation::NETWORK) else { return Ok(None) };
    let parsed = NetworkSelection::parse_primary(value);
    parsed.map(Some).map_err(|e| Error::invalid(format!("annotation {}: {e}", annotation::NETWORK)))
}

/// Parses a quantity of Kubernetes: `10M`, `1.5Gi`, `1e6`. Rates are exact up to 2^53.
fn quantity(text: &str) -> Option<f64> {
    const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    const DECIMAL: [(&str, i32); 9] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let of = |table: &[(&str, i32)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, power)| *power);
    if let Some(power) = of(&BINARY) {
        return Some(number * 2f64.powi(power));
    }
    if let Some(power) = of(&DECIMAL) {
        return Some(number * 10f64.powi(power));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-30..=30).contains(&exponent).then(|| number * 10f64.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        let all = ["10M", "1.5Gi", "1e6", "1000", "64k", "500m"].map(|text| quantity(text).expect(text));
        assert_eq!(all, [1e7, 1.5 * 1_073_741_824.0, 1e6, 1e3, 64e3, 0.5]);
        for wrong in ["", "M", "-1", "1 M", "1Mb", "1e", "1e99", "1.2.3"] {
            assert_eq!(quantity(wrong), None, "{wrong}");
        }
    }
}
