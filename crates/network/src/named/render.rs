//! The CNI list of a named network: types that run in this process.

use std::{net::IpAddr, path::Path};

use rtnl::subnet::{Subnet, address, number};
use serde_json::{Value, json};

use super::{
    definition::{AddressPool, NetworkDefinition},
    driver::Driver,
    options::{BridgeSettings, ChildSettings, Options, OverlaySettings},
    overlay_store::OverlayStore,
};

/// Member of the list: the name that people gave the network.
pub(crate) const NAME_KEY: &str = "io.pinion.network";
/// Member of the list: whether pods cannot reach anything else.
pub(crate) const INTERNAL_KEY: &str = "io.pinion.internal";
/// Member of the plugin `bridge`: makes it one of a named network.
const NAMED_KEY: &str = "io.pinion.named";

/// What lists have from the configuration of the daemon.
pub(crate) struct Surroundings<'a> {
    /// Directory of leases, which is emptied at boot.
    pub(crate) leases: &'a Path,
    pub(crate) overlays: Option<&'a OverlayStore>,
}

/// Returns the list. The first network of a pod has its default routes.
pub(crate) fn list(definition: &NetworkDefinition, is_primary: bool, from: &Surroundings<'_>) -> Result<Value, String> {
    let plugins = match definition.parsed_options()? {
        Options::Bridge(options) => bridge(definition, &options),
        Options::Child(options) => child(definition, &options, is_primary, from.leases),
        Options::Overlay(options) => overlay(definition, &options, is_primary, from)?,
    };
    Ok(json!({
        "cniVersion": "1.1.0",
        "name": definition.list_name(),
        NAME_KEY: definition.name,
        INTERNAL_KEY: definition.internal,
        "plugins": plugins,
    }))
}

fn bridge(definition: &NetworkDefinition, options: &BridgeSettings) -> Value {
    let internal = definition.internal;
    json!([
        {
            "type": "bridge",
            "bridge": definition.bridge(),
            "isGateway": true,
            "isDefaultGateway": !internal,
            "ipMasq": options.masquerade && !internal,
            "hairpinMode": options.icc,
            "mtu": options.mtu.unwrap_or(0),
            "ipam": {"type": "host-local", "ranges": ranges(definition)},
            NAMED_KEY: {"internal": internal, "isolated": !options.icc},
        },
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ])
}

fn child(definition: &NetworkDefinition, options: &ChildSettings, is_primary: bool, leases: &Path) -> Value {
    let has_routes = is_primary && !definition.internal;
    let default = |pool: &AddressPool| {
        let destination = if pool.subnet.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({"dst": destination, "gw": pool.gateway})
    };
    let routes: Vec<Value> = definition.subnets.iter().filter(|_| has_routes).map(default).collect();
    let ipam = json!({
        "type": "host-local",
        "ranges": ranges(definition),
        "routes": routes,
        "dataDir": leases,
    });
    let mut plugin = json!({
        "type": definition.driver.name(),
        "master": options.parent,
        "mode": options.mode,
        "mtu": options.mtu.unwrap_or(0),
        "ipam": ipam,
        "capabilities": {"ips": true},
    });
    if definition.driver == Driver::Macvlan {
        plugin["capabilities"]["mac"] = json!(true);
    }
    json!([plugin])
}

fn overlay(
    definition: &NetworkDefinition,
    options: &OverlaySettings,
    is_primary: bool,
    from: &Surroundings<'_>,
) -> Result<Value, String> {
    let store = from.overlays.ok_or("overlays need an etcd cluster; set network.overlay.endpoints")?;
    let subnets: Vec<Subnet> = definition.subnets.iter().map(|pool| pool.subnet).collect();
    let mut etcd = store.section.clone();
    etcd["subnetLength"] = json!(options.subnet_lengths);
    let mut plugin = json!({
        "type": "overlay",
        "vni": options.vni.ok_or("option vni is missing")?,
        "network": subnets,
        "etcd": etcd,
        "encrypted": options.encrypted.unwrap_or(false),
        "mtu": options.mtu.unwrap_or(0),
        "stateDir": store.state_directory,
        "isDefaultGateway": is_primary,
        "ipam": {"type": "host-local", "dataDir": from.leases},
        "capabilities": {"ips": true, "mac": true},
    });
    if let Some(node) = store.node {
        plugin["node"] = json!(node);
    }
    Ok(json!([plugin, {"type": "portmap", "capabilities": {"portMappings": true}}]))
}

/// Returns a set of ranges for each subnet: what is left of it without the reserved addresses.
fn ranges(definition: &NetworkDefinition) -> Vec<Vec<Value>> {
    definition.subnets.iter().map(|pool| parts(pool).into_iter().map(|part| range(pool, part)).collect()).collect()
}

fn range(pool: &AddressPool, (first, last): (IpAddr, IpAddr)) -> Value {
    json!({"subnet": pool.subnet, "rangeStart": first, "rangeEnd": last, "gateway": pool.gateway})
}

/// Returns the ranges of a subnet between its reserved addresses.
pub(crate) fn parts(pool: &AddressPool) -> Vec<(IpAddr, IpAddr)> {
    let whole = pool.subnet;
    let within = pool.ip_range.unwrap_or(whole);
    let clamp = |range: Subnet| {
        let first = number(range.network()).max(number(whole.first_usable()));
        (first, number(range.last()).min(number(whole.last_usable())))
    };
    let (mut first, last) = clamp(within);
    let mut reserved: Vec<u128> = pool.reserved.values().map(|ip| number(*ip)).collect();
    reserved.sort_unstable();
    let mut parts = Vec::new();
    for taken in reserved.into_iter().chain([last.saturating_add(1)]) {
        if taken > first && first <= last {
            parts.push((first, (taken - 1).min(last)));
        }
        first = first.max(taken.saturating_add(1));
    }
    let like = whole.address;
    parts.into_iter().map(|(first, last)| (address(first, like), address(last, like))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pool(subnet: &str, ip_range: Option<&str>, reserved: &[&str]) -> AddressPool {
        let ip = |text: &&str| text.parse::<IpAddr>().expect("an address");
        AddressPool {
            subnet: subnet.parse().expect("a subnet"),
            gateway: "10.1.0.1".parse().expect("an address"),
            ip_range: ip_range.map(|text| text.parse().expect("a subnet")),
            reserved: reserved.iter().map(|text| ((*text).to_owned(), ip(text))).collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn reserved_addresses_are_left_out() {
        let text = |pool: AddressPool| -> Vec<String> {
            parts(&pool).into_iter().map(|(first, last)| format!("{first}-{last}")).collect()
        };
        assert_eq!(text(pool("10.1.0.0/24", None, &[])), ["10.1.0.1-10.1.0.254"]);
        assert_eq!(
            text(pool("10.1.0.0/24", None, &["10.1.0.9", "10.1.0.1", "10.1.0.254"])),
            ["10.1.0.2-10.1.0.8", "10.1.0.10-10.1.0.253"]
        );
        assert_eq!(text(pool("10.1.0.0/24", Some("10.1.0.128/25"), &["10.1.0.5"])), ["10.1.0.128-10.1.0.254"]);
        assert_eq!(text(pool("fd00::/64", None, &[])), ["fd00::1-fd00::ffff:ffff:ffff:ffff"]);
    }
}
