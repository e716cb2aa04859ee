//! `vlan`: an 802.1Q VLAN of a link of the node.

use rtnl::{Kind, Variant};
use serde::Deserialize;

use crate::{Error, PluginResult, Request, link::UpperLink};

/// Largest VLAN number.
const ID_MAX: u16 = 4094;

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    master: String,
    #[serde(default, rename = "vlanId")]
    id: u16,
    #[serde(default)]
    mtu: u32,
    #[serde(default, rename = "linkInContainer")]
    is_in_pod: bool,
}

fn parse(request: &Request) -> Result<UpperLink, Error> {
    let options: Options = request.options()?;
    if options.master.is_empty() {
        return Err(Error::config("master", "missing"));
    }
    if options.id > ID_MAX {
        return Err(Error::config("vlanId", format!("{} is more than {ID_MAX}", options.id)));
    }
    Ok(UpperLink {
        master: options.master,
        kind: Kind::Vlan { id: options.id },
        module: "8021q",
        mac: None,
        mtu: options.mtu,
        is_in_pod: options.is_in_pod,
        announces: false,
    })
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    parse(request)?.add(request, None)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let parsed = parse(request)?;
    let Kind::Vlan { id } = parsed.kind else { return Ok(()) };
    parsed.check(request, Variant::Vlan(id))
}
