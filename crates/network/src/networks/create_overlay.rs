//! Creates overlays, which all nodes of a cluster have in common: the first node writes the definition to etcd, others join.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use etcd::Lease;
use overlay::default_port;
use rtnl::{
    netlink::Socket,
    subnet::{Subnet, bits},
};

use super::subnets::taken;
use crate::{
    AddressPool, Driver, Error, NetworkDefinition, NetworkRequest,
    named::{
        ENCRYPTED, Options, OverlaySettings, OverlayStore, Plan, SUBNET_LENGTH, VNI, new_id, now, random, unique_local,
    },
    network::Inner,
    overlay::{
        agent,
        shared::{Conflict, Definitions, Shared},
    },
};

/// Attempts while other nodes create and remove networks, too.
const ATTEMPTS: usize = 16;
/// Range of identifiers that are chosen, as Docker's.
const VNIS: std::ops::Range<u32> = 4096..1 << 24;
/// How many identifiers are tried: with half of the ports taken, all of these are once in 2^64 networks.
const VNI_ATTEMPTS: usize = 64;
/// Prefix of a chosen IPv6 subnet, in bits: each node gets a subnet of 64 bits.
const IPV6_BITS: u8 = 48;
/// Largest difference of the prefixes of a node's subnet and the network: the number of nodes is 2^16.
const NODE_BITS_MAX: u8 = 16;
/// Difference of the prefixes in a small network: 16 nodes.
const NODE_BITS_MIN: u8 = 4;

/// Creates an overlay, or joins one that another node has created.
pub(super) async fn create(
    inner: &Arc<Inner>,
    plan: Plan,
    request: NetworkRequest,
) -> Result<NetworkDefinition, Error> {
    let Options::Overlay(settings) = &plan.options else {
        return Err(Error::config("driver", "is not overlay"));
    };
    refuse(&plan, &request)?;
    let store = store(inner, &plan.name)?;
    let (client, node) = connect(store, &plan.name).await?;
    let definitions = Definitions::new(&client, &store.etcd, node);
    for _ in 0..ATTEMPTS {
        if let Some(found) = definitions.find(&plan.name).await? {
            agrees(&plan, settings, &found.definition)?;
            check_kernel(&found.definition)?;
            let Some(lease) = definitions.join(&found).await? else { continue };
            return keep(inner, &definitions, found.definition, lease, &request).await;
        }
        let (others, revision) = definitions.all().await?;
        let shared = offload::in_place(|| choose(inner, store, &plan, settings, &others, node))?;
        match definitions.create(&shared, revision).await? {
            Ok(lease) => {
                let (name, id) = (shared.name.clone(), shared.id.clone());
                let kept = keep(inner, &definitions, shared, lease, &request).await;
                if kept.is_err() {
                    // The first error is the one to return. A network without a node can be joined, or removed by one that does.
                    let _ = definitions.delete_unused(&name, &id).await;
                }
                return kept;
            }
            Err(Conflict::Vni) if settings.vni.is_some() => {
                let reason = format!("vni {} is that of another network; choose another one, or none", shared.vni);
                return Err(wrong(&plan.name, reason));
            }
            Err(Conflict::Vni | Conflict::Other) => {}
        }
    }
    Err(wrong(&plan.name, format!("other nodes created and removed it each of {ATTEMPTS} times")))
}

/// Joins an overlay that another node has created.
pub(super) async fn join(inner: &Arc<Inner>, name: &str) -> Result<NetworkDefinition, Error> {
    let store = store(inner, name)?;
    let (client, node) = connect(store, name).await?;
    let definitions = Definitions::new(&client, &store.etcd, node);
    for _ in 0..ATTEMPTS {
        let found = definitions.find(name).await?.ok_or_else(|| Error::NetworkMissing(name.to_owned()))?;
        check_kernel(&found.definition)?;
        let Some(lease) = definitions.join(&found).await? else { continue };
        let request = NetworkRequest { name: name.to_owned(), ..NetworkRequest::default() };
        return keep(inner, &definitions, found.definition, lease, &request).await;
    }
    Err(wrong(name, format!("other nodes created and removed it each of {ATTEMPTS} times")))
}

fn wrong(name: &str, reason: String) -> Error {
    Error::config(format!("create network {name}"), reason)
}

fn store<'a>(inner: &'a Inner, name: &str) -> Result<&'a OverlayStore, Error> {
    inner.overlay_store.as_ref().ok_or_else(|| {
        let reason =
            "the nodes of an overlay find each other in etcd; set network.overlay.endpoints in the configuration";
        wrong(name, reason.to_owned())
    })
}

/// Returns a client of etcd, and the address of this node.
async fn connect(store: &OverlayStore, name: &str) -> Result<(etcd::Client, IpAddr), Error> {
    let node = agent::node(store.node).await.map_err(|reason| wrong(name, reason))?;
    let client = agent::client(&store.etcd).await.map_err(|reason| wrong(name, reason))?;
    Ok((client, node))
}

/// Refuses what overlays do not have.
fn refuse(plan: &Plan, request: &NetworkRequest) -> Result<(), Error> {
    if plan.is_internal {
        let reason = "an overlay cannot be internal: its nodes route its packets; use an internal bridge";
        return Err(wrong(&plan.name, reason.to_owned()));
    }
    let is_plain = |subnet: &crate::SubnetRequest| {
        subnet.gateway.is_empty() && subnet.ip_range.is_empty() && subnet.reserved.is_empty()
    };
    match request.subnets.iter().all(is_plain) {
        true => Ok(()),
        false => {
            let reason = "each node has a part of the subnet, with a gateway of its own; remove gateway, ip-range and aux-address";
            Err(wrong(&plan.name, reason.to_owned()))
        }
    }
}

/// Refuses a request that differs from the network of this name.
fn agrees(plan: &Plan, settings: &OverlaySettings, found: &Shared) -> Result<(), Error> {
    let differs = |what: &str, requested: String, of_network: String| {
        let reason = format!(
            "another node has created it with {what} {of_network}, not {requested}; leave it out, or choose another name"
        );
        Err(wrong(&plan.name, reason))
    };
    if let Some(pool) = plan.subnets.iter().find(|pool| !found.subnets.contains(&pool.subnet.masked())) {
        let all: Vec<String> = found.subnets.iter().map(ToString::to_string).collect();
        return differs("subnet", pool.subnet.to_string(), all.join(", "));
    }
    if plan.needs_ipv6 && !found.subnets.iter().any(|subnet| subnet.address.is_ipv6()) {
        return differs("subnets", "one of IPv6".to_owned(), "of IPv4 only".to_owned());
    }
    if let Some(vni) = settings.vni.filter(|vni| *vni != found.vni) {
        return differs("vni", vni.to_string(), found.vni.to_string());
    }
    if !settings.subnet_lengths.is_empty() && settings.subnet_lengths != found.subnet_lengths {
        return differs("subnet_length", text(&settings.subnet_lengths), text(&found.subnet_lengths));
    }
    if let Some(encrypted) = settings.encrypted.filter(|encrypted| *encrypted != found.encrypted) {
        return differs("encrypted", encrypted.to_string(), found.encrypted.to_string());
    }
    match settings.mtu.is_some() && settings.mtu != found.mtu {
        false => Ok(()),
        true => differs(
            "mtu",
            settings.mtu.map_or_else(String::new, |mtu| mtu.to_string()),
            found.mtu.map_or_else(|| "that of the links".to_owned(), |mtu| mtu.to_string()),
        ),
    }
}

/// Refuses a subnet that is too small for several nodes, or that this node is in.
fn check_subnets(subnets: &[Subnet]) -> Result<(), String> {
    let is_small = |subnet: &&Subnet| subnet.prefix + NODE_BITS_MIN > bits(subnet.address) - 2;
    if let Some(subnet) = subnets.iter().find(is_small) {
        let longest = bits(subnet.address) - 2 - NODE_BITS_MIN;
        return Err(format!(
            "subnet {subnet} is too small to be divided among nodes; use one of {longest} bits or fewer"
        ));
    }
    let local = Socket::route().map_err(|error| format!("open rtnetlink socket: {error}"));
    let local = overlay::local_addresses(&mut local?).map_err(|error| error.to_string())?;
    match local.iter().find_map(|address| Some((address, subnets.iter().find(|subnet| subnet.contains(*address))?))) {
        None => Ok(()),
        Some((address, subnet)) => {
            Err(format!("subnet {subnet} contains {address}, an address of this node; use another subnet"))
        }
    }
}

/// Chooses what a request leaves open. `networks` are all overlays, which this node need not have.
fn choose(
    inner: &Inner,
    store: &OverlayStore,
    plan: &Plan,
    settings: &OverlaySettings,
    networks: &[Shared],
    node: IpAddr,
) -> Result<Shared, Error> {
    let others: Vec<Subnet> = networks.iter().flat_map(|network| &network.subnets).copied().collect();
    let mut subnets: Vec<Subnet> = plan.subnets.iter().map(|pool| pool.subnet.masked()).collect();
    check_subnets(&subnets).map_err(|reason| wrong(&plan.name, reason))?;
    let mut taken = taken(inner, Driver::Overlay, &subnets).map_err(|refusal| refusal.of_network(&plan.name))?;
    taken.extend(others.iter().copied());
    if let Some(subnet) = subnets.iter().find(|subnet| others.iter().any(|other| other.overlaps(**subnet))) {
        return Err(wrong(&plan.name, format!("subnet {subnet} overlaps with that of another overlay")));
    }
    if !subnets.iter().any(|subnet| subnet.address.is_ipv4()) {
        let chosen = store.pools.choose(false, &taken);
        let reason = "every subnet of network.overlay.address_pools is in use; add a pool, or use --subnet";
        subnets.insert(0, chosen.ok_or_else(|| wrong(&plan.name, reason.to_owned()))?);
    }
    if plan.needs_ipv6 {
        subnets.push(unique_local(IPV6_BITS)?);
    }
    let lengths = subnets.iter().map(|subnet| node_prefix(*subnet)).collect();
    let shared = Shared {
        id: new_id()?,
        name: plan.name.clone(),
        vni: match settings.vni {
            Some(vni) => vni,
            None => random_vni(networks, settings.encrypted.unwrap_or(false))?,
        },
        subnets,
        subnet_lengths: if settings.subnet_lengths.is_empty() { lengths } else { settings.subnet_lengths.clone() },
        encrypted: settings.encrypted.unwrap_or(false),
        mtu: settings.mtu,
    };
    check_kernel(&shared)?;
    // What the plugin would refuse later.
    let check = || {
        let definition = definition(&shared, &NetworkRequest::default())?;
        inner.check_overlay(&inner.settings_of(&definition)?, node)
    };
    check().map_err(|reason| wrong(&plan.name, reason))?;
    Ok(shared)
}

/// Refuses a network that the kernel of this node cannot be part of.
fn check_kernel(shared: &Shared) -> Result<(), Error> {
    if !shared.encrypted {
        return Ok(());
    }
    offload::in_place(overlay::check_encryption).map_err(|error| wrong(&shared.name, error.to_string()))
}

/// Returns the length of the prefix of a node's subnet: 24 and 64 unless the network is smaller or larger.
fn node_prefix(subnet: Subnet) -> u8 {
    let usual = if subnet.address.is_ipv4() { 24 } else { 64 };
    let (first, last) = (subnet.prefix + NODE_BITS_MIN, subnet.prefix + NODE_BITS_MAX);
    usual.clamp(first, last).min(bits(subnet.address) - 2)
}

/// Returns an identifier that no network has; if it is to be encrypted, one whose port no network has.
fn random_vni(networks: &[Shared], encrypted: bool) -> Result<u32, Error> {
    let is_taken = |vni: u32| {
        let clashes = |other: &Shared| {
            let has_port = encrypted && other.encrypted;
            other.vni == vni || has_port && default_port(other.vni, true) == default_port(vni, true)
        };
        networks.iter().any(clashes)
    };
    let mut vni = VNIS.start;
    for _ in 0..VNI_ATTEMPTS {
        let mut bytes = [0; 4];
        random(&mut bytes)?;
        vni = VNIS.start + u32::from_ne_bytes(bytes) % (VNIS.end - VNIS.start);
        if !is_taken(vni) {
            break;
        }
    }
    Ok(vni)
}

/// Returns the definition of this node.
fn definition(shared: &Shared, request: &NetworkRequest) -> Result<NetworkDefinition, String> {
    let mut options: BTreeMap<String, String> = request.options.clone();
    options.insert(VNI.to_owned(), shared.vni.to_string());
    options.insert(SUBNET_LENGTH.to_owned(), text(&shared.subnet_lengths));
    options.remove(ENCRYPTED);
    if shared.encrypted {
        options.insert(ENCRYPTED.to_owned(), "true".to_owned());
    }
    if let Some(mtu) = shared.mtu {
        options.insert("mtu".to_owned(), mtu.to_string());
    }
    Ok(NetworkDefinition {
        id: shared.id.clone(),
        name: shared.name.clone(),
        created_at: now(),
        driver: Driver::Overlay,
        subnets: shared.subnets.iter().map(|subnet| AddressPool::whole(*subnet)).collect::<Result<_, _>>()?,
        internal: false,
        attachable: request.attachable,
        labels: request.labels.clone(),
        options,
    })
}

fn text(lengths: &[u8]) -> String {
    lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Stores the definition on this node, and starts its agent. `lease` keeps other nodes from deleting the network.
async fn keep(
    inner: &Arc<Inner>,
    definitions: &Definitions<'_>,
    shared: Shared,
    lease: Lease,
    request: &NetworkRequest,
) -> Result<NetworkDefinition, Error> {
    let (name, node) = (shared.name.clone(), definitions.node());
    let definition = definition(&shared, request).map_err(|reason| wrong(&name, reason));
    let kept = match definition {
        Err(error) => Err(error),
        Ok(definition) => {
            let store = move |inner: &Inner| {
                let others = inner.named.list();
                if others.iter().any(|other| other.name == definition.name) {
                    return Err(Error::NetworkExists(definition.name));
                }
                if let Some(other) = others.iter().find(|other| other.list_name() == definition.list_name()) {
                    let reason = format!("its id in etcd is that of the network {}", other.name);
                    return Err(wrong(&definition.name, reason));
                }
                let requested: Vec<Subnet> = definition.subnets.iter().map(|pool| pool.subnet).collect();
                check_subnets(&requested).map_err(|reason| wrong(&definition.name, reason))?;
                taken(inner, Driver::Overlay, &requested).map_err(|refusal| refusal.of_network(&definition.name))?;
                let checked = inner.settings_of(&definition).and_then(|settings| inner.check_overlay(&settings, node));
                checked.map_err(|reason| wrong(&definition.name, reason))?;
                inner.named.add(definition).map(|definition| NetworkDefinition::clone(&definition))
            };
            inner.change("create", &name, store).await
        }
    };
    match &kept {
        Ok(_) => inner.overlay_passes.request(),
        // Another request of this node joined at the same time, and has the same key.
        Err(Error::NetworkExists(_)) => {}
        Err(_) => definitions.end(lease).await,
    }
    kept
}
