//! Addresses from ranges of this host, in the format of CNI's `host-local`.

mod lease;
mod options;
mod range;

use std::net::IpAddr;

pub use lease::Leases;
pub use range::Range;

use options::Options;

use crate::{Error, Ip, PluginResult, Request};

/// Assigns one address from each set of ranges.
pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options = Options::parse(request)?;
    let leases = options.open()?;
    if !request.is_new {
        let has = leases.of_interface(&request.container, &request.interface, &[], usize::MAX)?;
        if let Some(address) = has.iter().find(|a| options.sets.iter().flatten().any(|range| range.contains(**a))) {
            let reason = format!("{} has {address} already", request.container);
            return Err(Error::config("ipam", reason));
        }
    }
    let mut result = PluginResult { dns: options.dns()?, routes: options.routes.clone(), ..PluginResult::default() };
    let taken = assign(request, &options, &leases, &mut result);
    if taken.is_err() {
        let addresses: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.address).collect();
        // The first error is the one to return.
        let _ = leases.release_interface(&request.container, &request.interface, &addresses, addresses.len());
    }
    taken.map(|()| result)
}

fn assign(request: &Request, options: &Options, leases: &Leases, result: &mut PluginResult) -> Result<(), Error> {
    // An engine passes the same address as a capability, in `args` and in `CNI_ARGS`.
    let mut requested: Vec<IpAddr> = Vec::new();
    for address in &options.requested {
        if !requested.contains(address) {
            requested.push(*address);
        }
    }
    for (set, ranges) in options.sets.iter().enumerate() {
        let wish = requested.iter().position(|address| ranges.iter().any(|range| range.contains(*address)));
        let (address, range) = match wish {
            Some(at) => take_requested(request, leases, set, ranges, requested.remove(at))?,
            None => leases.take(set, ranges, &request.container, &request.interface)?,
        };
        let ip = Ip { interface: None, address: range.subnet.with(address), gateway: Some(range.gateway) };
        result.ips.push(ip);
    }
    match requested.first() {
        Some(address) => Err(Error::config("ips", format!("{address} is in no range"))),
        None => Ok(()),
    }
}

fn take_requested(
    request: &Request,
    leases: &Leases,
    set: usize,
    ranges: &[Range],
    address: IpAddr,
) -> Result<(IpAddr, Range), Error> {
    let refused = |reason: &str| Error::config("ips", format!("{address} {reason}"));
    let range = ranges.iter().find(|range| range.contains(address)).ok_or_else(|| refused("is in no range"))?;
    if range.is_reserved(address) {
        return Err(refused("is the gateway"));
    }
    if !leases.take_one(set, address, &request.container, &request.interface)? {
        return Err(Error::Leased(address));
    }
    Ok((address, *range))
}

/// Releases the addresses of the interface.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    let previous = request.previous.iter().flat_map(|previous| &previous.ips);
    let likely: Vec<IpAddr> = previous.map(|ip| ip.address.address).collect();
    let (owner, interface) = (&request.container, &request.interface);
    options.open()?.release_interface(owner, interface, &likely, options.sets.len())
}

/// Checks that the interface has an address.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    let owned = options.open()?.of_interface(&request.container, &request.interface, &[], 1)?;
    if owned.is_empty() {
        return Err(Error::differs("ipam", format!("{} has no leased address", request.container)));
    }
    Ok(())
}

/// Checks the configuration.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    Options::parse(request).map(drop)
}

/// Releases the addresses of attachments that are not valid.
pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    let valid = request.valid_attachments()?;
    options.open()?.collect(|container, interface| {
        valid.iter().any(|a| a.container == container && interface.is_none_or(|interface| a.interface == interface))
    })
}
