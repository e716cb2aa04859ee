//! `macvlan`: a link with a MAC address of its own on a link of the node.

use rtnl::{Kind, Variant};
use serde::Deserialize;

use crate::{
    Error, PluginResult, Request, arguments,
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
    #[serde(default)]
    mac: String,
    #[serde(default, rename = "linkInContainer")]
    is_in_pod: bool,
    #[serde(default, rename = "bcqueuelen")]
    broadcast_queue: u32,
}

fn mode(name: &str) -> Result<u32, Error> {
    match name {
        "private" => Ok(1),
        "vepa" => Ok(2),
        "" | "bridge" => Ok(4),
        "passthru" => Ok(8),
        other => Err(Error::config("mode", format!("{other:?} is not one of bridge, private, vepa, passthru"))),
    }
}

fn parse(request: &Request) -> Result<UpperLink, Error> {
    let options: Options = request.options()?;
    let mac = request.mac_of_engine().unwrap_or(options.mac);
    Ok(UpperLink {
        master: match options.master.is_empty() {
            true => link::of_default_route(request, options.is_in_pod)?,
            false => options.master,
        },
        kind: Kind::Macvlan {
            mode: mode(&options.mode)?,
            broadcast_queue: (options.broadcast_queue > 0).then_some(options.broadcast_queue),
        },
        module: "macvlan",
        mac: (!mac.is_empty()).then(|| arguments::mac(&mac)).transpose()?,
        mtu: options.mtu,
        is_in_pod: options.is_in_pod,
        announces: true,
    })
}

impl Request {
    /// Returns the MAC address that the engine requests in `runtimeConfig` or `CNI_ARGS`.
    pub(crate) fn mac_of_engine(&self) -> Option<String> {
        let runtime = self.config.get("runtimeConfig").and_then(|runtime| runtime.get("mac"));
        let runtime = runtime.and_then(|mac| mac.as_str()).filter(|mac| !mac.is_empty());
        runtime.or_else(|| self.arguments.get("MAC")).map(str::to_owned)
    }
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    parse(request)?.add(request, None)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let parsed = parse(request)?;
    let Kind::Macvlan { mode, .. } = parsed.kind else { return Ok(()) };
    parsed.check(request, Variant::Macvlan(mode))
}
