//! `ipvlan`: a link with addresses of its own and the MAC address of a link of the node.

use rtnl::{Kind, Variant};
use serde::Deserialize;

use crate::{
    Error, PluginResult, Request, address_management,
    link::{self, UpperLink},
};

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    master: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    mtu: u32,
    #[serde(default, rename = "linkInContainer")]
    is_in_pod: bool,
}

fn mode(name: &str) -> Result<u16, Error> {
    match name {
        "" | "l2" => Ok(0),
        "l3" => Ok(1),
        "l3s" => Ok(2),
        other => Err(Error::config("mode", format!("{other:?} is not one of l2, l3, l3s"))),
    }
}

fn parse(request: &Request) -> Result<UpperLink, Error> {
    let options: Options = request.options()?;
    let master = match (&request.previous, options.master.is_empty()) {
        (_, false) => options.master,
        (None, true) => link::of_default_route(request, options.is_in_pod)?,
        (Some(previous), true) => match &previous.interfaces[..] {
            [one] if !one.name.is_empty() => one.name.clone(),
            _ => return Err(Error::config("master", "missing, and the previous result has not exactly one interface")),
        },
    };
    Ok(UpperLink {
        master,
        kind: Kind::Ipvlan { mode: mode(&options.mode)? },
        module: "ipvlan",
        mac: None,
        mtu: options.mtu,
        is_in_pod: options.is_in_pod,
        announces: true,
    })
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let chained = request.previous.clone().filter(|previous| !previous.ips.is_empty());
    if chained.is_none() && !address_management::is_configured(request) {
        return Err(Error::config("ipam", "missing, and the previous result has no addresses"));
    }
    parse(request)?.add(request, chained)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let parsed = parse(request)?;
    let Kind::Ipvlan { mode } = parsed.kind else { return Ok(()) };
    parsed.check(request, Variant::Ipvlan(mode))
}
