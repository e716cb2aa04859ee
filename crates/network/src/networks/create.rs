//! Creates networks.

use std::{io, sync::Arc};

use rtnl::subnet::Subnet;
use tracing::Instrument;

use super::{create_overlay, subnets::taken};
use crate::{
    AddressPool, Driver, Error, Network, NetworkDefinition, NetworkRequest,
    named::{self, Options, Plan, new_id, now, unique_local},
    network::Inner,
};

/// Prefix of a chosen IPv6 subnet, in bits.
const IPV6_BITS: u8 = 64;
/// Attempts to find a random IPv6 subnet that is free. The first one nearly always is.
const ATTEMPTS: usize = 8;

impl Network {
    /// Creates a named network: chooses the subnets that the request does not have, and stores the definition. No kernel
    /// object is created. It survives a reboot once this returns.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid request or a subnet that is in use, [`Error::NetworkExists`], or the error of
    /// the disk.
    pub async fn create_network(&self, request: NetworkRequest) -> Result<NetworkDefinition, Error> {
        let plan = request.parse()?;
        if plan.driver == Driver::Overlay {
            let inner = Arc::clone(&self.inner);
            // It runs to completion even if the caller stops waiting: a definition in etcd needs a node that has it.
            let create = async move { create_overlay::create(&inner, plan, request).await };
            let finished = tokio::spawn(create.in_current_span()).await;
            return finished.map_err(|e| Error::kernel("create", "network", io::Error::other(e)))?;
        }
        let name = plan.name.clone();
        self.inner.change("create", &name, move |inner| create(inner, plan, request)).await
    }
}

fn create(inner: &Inner, plan: Plan, request: NetworkRequest) -> Result<NetworkDefinition, Error> {
    let named = inner.named.list();
    if named.iter().any(|other| other.name == plan.name) {
        return Err(Error::NetworkExists(plan.name));
    }
    let wrong = |reason: String| Error::config(format!("create network {}", plan.name), reason);
    check_link(inner, &plan)?;
    let requested: Vec<Subnet> = plan.subnets.iter().map(|pool| pool.subnet).collect();
    let taken = taken(inner, plan.driver, &requested).map_err(|error| error.of_network(&plan.name))?;
    let mut subnets = plan.subnets.clone();
    if !subnets.iter().any(|pool| pool.subnet.address.is_ipv4()) {
        let subnet = inner.pools.choose(false, &taken).ok_or_else(|| {
            wrong("every subnet of network.address_pools is in use; add a pool, or use --subnet".to_owned())
        })?;
        subnets.insert(0, AddressPool::whole(subnet).map_err(wrong)?);
    }
    if plan.needs_ipv6 {
        subnets.push(AddressPool::whole(free_ipv6(inner, &taken)?).map_err(wrong)?);
    }
    let definition = NetworkDefinition {
        id: new_id()?,
        name: plan.name,
        created_at: now(),
        driver: plan.driver,
        subnets,
        internal: request.internal,
        attachable: request.attachable,
        labels: request.labels,
        options: request.options,
    };
    if definition.subnets.iter().any(|pool| named::parts(pool).is_empty()) {
        let reason = "its ranges have no address for a pod; use a larger subnet or ip-range";
        return Err(Error::config(format!("create network {}", definition.name), reason));
    }
    inner.named.add(definition).map(|definition| NetworkDefinition::clone(&definition))
}

/// Refuses a bridge whose name a link has, and a parent that does not exist.
fn check_link(inner: &Inner, plan: &Plan) -> Result<(), Error> {
    let wrong = |reason: String| Error::config(format!("create network {}", plan.name), reason);
    let exists = |name: &str| inner.bridges.has_link(name);
    match &plan.options {
        Options::Bridge(options) => {
            let Some(name) = &options.name else { return Ok(()) };
            let is_taken = inner.named.list().iter().any(|other| other.bridge().as_ref() == Some(name));
            let is_built_in = inner.built_in.bridge().is_some_and(|built_in| built_in.bridge == *name);
            match is_taken || is_built_in || exists(name)? {
                true => Err(wrong(format!("a link {name} exists already; choose another bridge name"))),
                false => Ok(()),
            }
        }
        Options::Overlay(_) => Ok(()),
        Options::Child(_) if plan.is_internal => {
            Err(wrong("its pods would reach the network of the parent all the same; use an internal bridge".to_owned()))
        }
        Options::Child(options) => match exists(&options.parent)? {
            true => Ok(()),
            false => Err(wrong(format!("parent {} is not a link of this node; see: ip link", options.parent))),
        },
    }
}

fn free_ipv6(inner: &Inner, taken: &[Subnet]) -> Result<Subnet, Error> {
    if let Some(subnet) = inner.pools.choose(true, taken) {
        return Ok(subnet);
    }
    for _ in 0..ATTEMPTS {
        let subnet = unique_local(IPV6_BITS)?;
        if !taken.iter().any(|other| other.overlaps(subnet)) {
            return Ok(subnet);
        }
    }
    Err(Error::config("IPv6 subnet", "no free unique local subnet was found; use --subnet"))
}
