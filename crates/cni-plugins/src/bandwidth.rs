//! `bandwidth`: limits what a pod receives by a token bucket filter on the node's end of its veth pair, and what it sends
//! by one on an intermediate functional block that the node's end redirects to.

use rtnl::{
    Kind, Link, NewLink, TokenBucket,
    netlink::{Batch, Refusal, Socket},
};
use rustix::io::Errno;
use serde::Deserialize;

use crate::{Error, Interface, PluginResult, Request, hash, pod};

/// Longest time that a packet waits in a queue, in milliseconds.
const LATENCY: u32 = 25;

/// Limits in bits and bits per second; zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limits {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl Limits {
    /// Returns the limits of the configuration, or those of the engine if there are none.
    fn parse(request: &Request) -> Result<Self, Error> {
        const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        let runtime = request.config.get("runtimeConfig").and_then(|runtime| runtime.get("bandwidth"));
        let limits = match runtime {
            Some(runtime) if !KEYS.iter().any(|key| request.config.contains_key(*key)) => {
                let invalid = |e: serde_json::Error| Error::config("runtimeConfig.bandwidth", e.to_string());
                serde_json::from_value(runtime.clone()).map_err(invalid)?
            }
            _ => request.options::<Self>()?,
        };
        for (direction, rate, burst) in [
            ("ingress", limits.ingress_rate, limits.ingress_burst),
            ("egress", limits.egress_rate, limits.egress_burst),
        ] {
            if (rate == 0) != (burst == 0) {
                return Err(Error::config(direction, "rate and burst belong together"));
            }
            if burst / 8 >= u64::from(u32::MAX) {
                return Err(Error::config(direction, "burst is 4 GiB or more"));
            }
        }
        Ok(limits)
    }

    fn ingress(&self) -> Option<TokenBucket> {
        bucket(self.ingress_rate, self.ingress_burst)
    }

    fn egress(&self) -> Option<TokenBucket> {
        bucket(self.egress_rate, self.egress_burst)
    }
}

fn bucket(rate: u64, burst: u64) -> Option<TokenBucket> {
    (rate > 0).then(|| TokenBucket::new(rate / 8, u32::try_from(burst / 8).unwrap_or(u32::MAX), LATENCY))
}

/// Returns the name of the intermediate block of an interface. For the first one it is that of the reference plugin, which
/// has one block for all interfaces of a container in a network.
fn block_name(request: &Request) -> String {
    const FIRST: &str = "eth0";
    let interface = if request.interface == FIRST { "" } else { &request.interface };
    hashed(request, interface)
}

fn hashed(request: &Request, interface: &str) -> String {
    hash::name(rtnl::NAME_MAX, "bwp", &format!("{}{}{interface}", request.network, request.container))
}

/// Returns the name of the block that an interface has: the reference plugin and earlier versions have named it.
fn present_block(request: &Request) -> String {
    let names = [block_name(request), hashed(request, "")];
    let is_known = |name: &&String| {
        let interfaces = request.previous.iter().flat_map(|previous| &previous.interfaces);
        interfaces.into_iter().any(|interface| interface.sandbox.is_empty() && interface.name == **name)
    };
    names.iter().find(is_known).unwrap_or(&names[0]).clone()
}

/// Returns the node's end of the pod's veth pair, which the previous result must contain.
fn node_end(request: &Request, socket: &mut Socket, previous: &PluginResult) -> Result<Link, Error> {
    let name = request.interface.clone();
    let pod_end = pod::visit(request.namespace()?, move |socket| pod::link(socket, &name))?;
    let missing = || Error::config("prevResult", format!("{} is not a veth pair of the node", request.interface));
    if pod_end.kind != "veth" || pod_end.parent == 0 {
        return Err(missing());
    }
    let found = rtnl::link_by_index(socket, pod_end.parent).map_err(|e| Error::kernel("find", "veth peer", e))?;
    let is_known = |link: &Link| previous.interfaces.iter().any(|i| i.sandbox.is_empty() && i.name == link.name);
    found.filter(is_known).ok_or_else(missing)
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let limits = Limits::parse(request)?;
    if limits == Limits::default() {
        return Ok(request.previous.clone().unwrap_or_default());
    }
    let mut result = request.required_previous()?;
    let mut socket = Request::node_socket()?;
    let node_end = node_end(request, &mut socket, &result)?;
    if let Some(bucket) = limits.ingress() {
        let mut batch = Batch::new();
        bucket.add(&mut batch, node_end.index);
        socket.request(batch).map_err(|refusal| of_traffic(&node_end.name, refusal))?;
    }
    if let Some(bucket) = limits.egress() {
        let block = limit_egress(request, &mut socket, &node_end, bucket).inspect_err(|_| {
            // The first error is the one to return.
            let _ = delete(request);
        })?;
        result.interfaces.push(Interface { mac: block.mac_text(), name: block.name, ..Interface::default() });
    }
    Ok(result)
}

fn limit_egress(request: &Request, socket: &mut Socket, node_end: &Link, bucket: TokenBucket) -> Result<Link, Error> {
    let name = block_name(request);
    let fail = |refusal| Error::of_module("create intermediate block", &name, "ifb", refusal);
    let mut batch = Batch::new();
    NewLink { mtu: Some(node_end.mtu), transmit_queue: Some(0), up: true, ..NewLink::new(&name, Kind::Ifb) }
        .add(&mut batch);
    socket.request(batch).map_err(fail)?;
    let block = rtnl::link_by_name(socket, &name).map_err(fail)?.ok_or_else(|| fail(Errno::NODEV.into()))?;
    let mut batch = Batch::new();
    rtnl::redirect(&mut batch, node_end.index, block.index);
    bucket.add(&mut batch, block.index);
    socket.request(batch).map_err(|refusal| of_traffic(&node_end.name, refusal))?;
    Ok(block)
}

/// Returns the error of a traffic control request. The kernel reports a missing module as `ENOENT`.
fn of_traffic(name: &str, refusal: Refusal) -> Error {
    // The order of the messages in the batches above; the first batch has only a token bucket.
    let module = match (refusal.errno, refusal.index) {
        (Errno::NOENT, 0) => "sch_tbf or sch_ingress",
        (Errno::NOENT, 1) => "cls_u32 and act_mirred",
        (Errno::NOENT, _) => "sch_tbf",
        _ => return Error::kernel("limit", name, refusal),
    };
    Error::Unsupported { operation: "limit", object: name.to_owned(), module }
}

/// Deletes the intermediate block. The filters of the node's end end with it.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let name = present_block(request);
    let mut batch = Batch::new();
    rtnl::delete(&mut batch, &name);
    match Request::node_socket()?.request(batch) {
        Err(refusal) if refusal.errno != Errno::NODEV => Err(Error::kernel("delete", name, refusal)),
        _ => Ok(()),
    }
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let limits = Limits::parse(request)?;
    let previous = request.required_previous()?;
    let mut socket = Request::node_socket()?;
    let node_end = node_end(request, &mut socket, &previous)?;
    let mut compare = |link: &Link, wanted: TokenBucket| {
        let found = rtnl::token_bucket(&mut socket, link.index).map_err(|e| Error::kernel("read", &link.name, e))?;
        // The kernel rounds the time of a full bucket.
        let is_same = |b: &TokenBucket| b.rate == wanted.rate && b.limit == wanted.limit;
        if found.as_ref().is_some_and(is_same) {
            Ok(())
        } else {
            Err(Error::differs(&link.name, "is not limited as configured"))
        }
    };
    if let Some(bucket) = limits.ingress() {
        compare(&node_end, bucket)?;
    }
    if let Some(bucket) = limits.egress() {
        let name = present_block(request);
        let mut socket = Request::node_socket()?;
        let block = rtnl::link_by_name(&mut socket, &name).map_err(|e| Error::kernel("find", &name, e))?;
        compare(&block.ok_or_else(|| Error::differs(name, "does not exist"))?, bucket)?;
    }
    Ok(())
}
