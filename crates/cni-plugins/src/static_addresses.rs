//! Addresses that the configuration or the engine names.

use std::net::IpAddr;

use rtnl::subnet::Subnet;
use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Ip, PluginResult, Request, Route, result::Dns};

/// Most addresses.
const ADDRESSES_MAX: usize = 64;

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Clone, Copy, Deserialize)]
struct Address {
    address: Subnet,
    gateway: Option<IpAddr>,
}

fn parse(request: &Request) -> Result<Raw, Error> {
    let section = request.config.get("ipam").cloned().ok_or_else(|| Error::config("ipam", "missing"))?;
    let mut raw: Raw = serde_json::from_value(section).map_err(|e| Error::config("ipam", e.to_string()))?;
    for text in request.arguments.get("IP").unwrap_or_default().split(',').filter(|text| !text.is_empty()) {
        raw.addresses.push(Address { address: subnet(text)?, gateway: None });
    }
    for text in request.arguments.get("GATEWAY").unwrap_or_default().split(',').filter(|text| !text.is_empty()) {
        let invalid = |_| Error::config("GATEWAY", format!("{text:?} is not an address"));
        let gateway: IpAddr = text.trim().parse().map_err(invalid)?;
        for address in raw.addresses.iter_mut().filter(|address| address.address.contains(gateway)) {
            address.gateway = Some(gateway);
        }
    }
    let args = request.config.get("args").and_then(|args| args.get("cni")).and_then(|cni| cni.get("ips"));
    let runtime = request.config.get("runtimeConfig").and_then(|runtime| runtime.get("ips"));
    for ips in [args, runtime].into_iter().flatten() {
        let texts = ips.as_array().into_iter().flatten().filter_map(Value::as_str);
        let named: Vec<Address> =
            texts.map(|text| Ok(Address { address: subnet(text)?, gateway: None })).collect::<Result<_, Error>>()?;
        if !named.is_empty() {
            // What the engine requests replaces what is configured.
            raw.addresses = named;
        }
    }
    if raw.addresses.len() > ADDRESSES_MAX {
        return Err(Error::config("ipam.addresses", format!("more than {ADDRESSES_MAX}")));
    }
    Ok(raw)
}

fn subnet(text: &str) -> Result<Subnet, Error> {
    text.trim().parse().map_err(|reason: String| Error::config("ips", reason))
}

/// Returns the addresses.
pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let raw = parse(request)?;
    let ip = |a: &Address| Ip { interface: None, address: a.address, gateway: a.gateway };
    let ips = raw.addresses.iter().map(ip).collect();
    Ok(PluginResult { ips, routes: raw.routes, dns: raw.dns, interfaces: Vec::new() })
}

/// Compares the gateways of the addresses with the previous result.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let (raw, previous) = (parse(request)?, request.required_previous()?);
    for address in &raw.addresses {
        let ip = previous.ips.iter().find(|ip| ip.address.address == address.address.address);
        if let Some(ip) = ip.filter(|ip| address.gateway.is_some() && ip.gateway != address.gateway) {
            return Err(Error::differs("ipam", format!("the gateway of {} differs", ip.address)));
        }
    }
    Ok(())
}

/// Checks the configuration.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    parse(request).map(drop)
}
