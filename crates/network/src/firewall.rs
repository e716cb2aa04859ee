//! The desired content of our nftables tables, and its synchronization with the kernel.
//!
//! The desired state is in memory and is rebuilt from the ledger at start. A change is sent to the kernel as elements.
//! If the table is missing or differs from what we wrote (another program flushed it), the whole table is replaced in
//! one transaction.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use crate::{
    Error, PortMapping, Protocol,
    nft::{self, Element, Family, Mapping, Table, Transaction},
};
use rtnl::{
    netlink::{Refusal, Socket},
    subnet::Subnet,
};

/// Our nftables tables.
#[derive(Debug)]
pub(crate) struct Firewall {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket: Socket,
    tables: [Table; 2],
    desired: DesiredState,
    /// Families whose table is in the kernel, according to our last transaction.
    created: [bool; 2],
}

/// What a bridge exchanges with other bridges of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything.
    Shared,
    /// Only connections to published ports.
    Named {
        /// Whether its pods exchange nothing with each other.
        isolated: bool,
    },
    /// Nothing, also with other machines.
    Internal {
        /// Whether its pods exchange nothing with each other.
        isolated: bool,
    },
}

#[derive(Debug, Default)]
struct DesiredState {
    bridges: BTreeSet<String>,
    named: BTreeSet<String>,
    internal: BTreeSet<String>,
    isolated: BTreeSet<String>,
    pods: Vec<Subnet>,
    masquerade: Vec<Subnet>,
    ports: BTreeMap<String, Vec<Mapping>>,
    owners: HashMap<(Protocol, u16), Vec<Owner>>,
}

/// A sandbox that has a port, and the address it has it on.
#[derive(Debug)]
struct Owner {
    host_ip: Option<IpAddr>,
    sandbox: String,
}

impl DesiredState {
    fn elements(&self, family: Family) -> Vec<Element> {
        let in_family = |subnets: &[Subnet]| -> Vec<Subnet> {
            subnets.iter().copied().filter(|s| Family::of(s.address) == family).collect()
        };
        let mut elements = nft::bridge_elements("bridges", self.bridges.iter().map(String::as_str));
        elements.extend(nft::bridge_elements("named", self.named.iter().map(String::as_str)));
        elements.extend(nft::bridge_elements("internal", self.internal.iter().map(String::as_str)));
        // What a pod of an isolated bridge sends to the node for another pod of the same bridge passes no isolation of ports.
        let same = self.named.iter().filter(|bridge| !self.isolated.contains(*bridge));
        elements.extend(nft::same_bridge_elements(same.map(String::as_str)));
        elements.extend(nft::subnet_elements("pods", &in_family(&self.pods)));
        elements.extend(nft::subnet_elements("masquerade", &in_family(&self.masquerade)));
        for mappings in self.ports.values() {
            elements.extend(nft::port_elements(&of_family(mappings, family)));
        }
        elements
    }

    /// Reports whether something was added.
    fn add_network(&mut self, bridge: &str, subnets: &[Subnet], masquerade: bool, scope: Scope) -> bool {
        let mut changed = self.bridges.insert(bridge.to_owned());
        if scope != Scope::Shared {
            changed |= self.named.insert(bridge.to_owned());
        }
        if matches!(scope, Scope::Internal { .. }) {
            changed |= self.internal.insert(bridge.to_owned());
        }
        if matches!(scope, Scope::Named { isolated: true } | Scope::Internal { isolated: true }) {
            changed |= self.isolated.insert(bridge.to_owned());
        }
        let mut add = |list: &mut Vec<Subnet>| {
            for subnet in subnets.iter().map(|s| s.masked()) {
                if !list.contains(&subnet) {
                    list.push(subnet);
                    changed = true;
                }
            }
        };
        add(&mut self.pods);
        if masquerade {
            add(&mut self.masquerade);
        }
        changed
    }

    fn remove_network(&mut self, bridge: &str, subnets: &[Subnet]) {
        for set in [&mut self.bridges, &mut self.named, &mut self.internal, &mut self.isolated] {
            set.remove(bridge);
        }
        for list in [&mut self.pods, &mut self.masquerade] {
            list.retain(|subnet| !subnets.contains(subnet));
        }
    }

    fn needs(&self, family: Family) -> bool {
        self.pods.iter().any(|s| Family::of(s.address) == family)
            || self.ports.values().flatten().any(|m| Family::of(m.address) == family)
    }
}

/// Reports whether one packet could match both addresses. `None` matches every address, an unspecified address every
/// address of its family.
fn clash(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    match (one, other) {
        (None, _) | (_, None) => true,
        (Some(one), Some(other)) if one.is_ipv4() != other.is_ipv4() => false,
        (Some(one), Some(other)) => one == other || one.is_unspecified() || other.is_unspecified(),
    }
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn of_family(mappings: &[Mapping], family: Family) -> Vec<Mapping> {
    mappings.iter().filter(|m| Family::of(m.address) == family).cloned().collect()
}

fn refused(operation: &'static str, table: &Table, refusal: Refusal) -> Error {
    Error::kernel(operation, format!("nftables table {table}"), refusal)
}

impl Firewall {
    /// Opens the tables of the daemon with this state directory, in the network namespace of the calling thread.
    pub(crate) fn open(state: &Path) -> Result<Self, Error> {
        let socket = Socket::netfilter().map_err(|e| Error::kernel("open", "nftables socket", e))?;
        let tables = FAMILIES.map(|family| nft::table_of(state, family));
        Ok(Self { state: Mutex::new(State { socket, tables, desired: DesiredState::default(), created: [false; 2] }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a bridge and its subnets. `masquerade` applies to packets that leave these subnets.
    pub(crate) fn add_network(
        &self,
        bridge: &str,
        subnets: &[Subnet],
        masquerade: bool,
        scope: Scope,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        if state.desired.add_network(bridge, subnets, masquerade, scope) { state.replace() } else { Ok(()) }
    }

    /// Removes a bridge and its subnets. No pod may be connected to it.
    pub(crate) fn remove_network(&self, bridge: &str, subnets: &[Subnet]) -> Result<(), Error> {
        let mut state = self.lock();
        if !state.desired.bridges.contains(bridge) {
            return Ok(());
        }
        state.desired.remove_network(bridge, subnets);
        FAMILIES.into_iter().try_for_each(|family| state.replace_family(family))
    }

    /// Restores the network of an attachment from the ledger. The kernel's tables have it already; without this they
    /// would be replaced by tables that lack it.
    pub(crate) fn remember_network(&self, bridge: &str, subnets: &[Subnet], masquerade: bool, scope: Scope) {
        self.lock().desired.add_network(bridge, subnets, masquerade, scope);
    }

    /// Reserves ports for a sandbox unless another one has them. Does not change the kernel's tables.
    pub(crate) fn reserve(&self, sandbox: &str, ports: &[PortMapping]) -> Result<(), Error> {
        let mut state = self.lock();
        let owners = &mut state.desired.owners;
        let requested: Vec<_> = ports.iter().filter(|port| port.host_port != 0).collect();
        for (at, port) in requested.iter().enumerate() {
            let key = (port.protocol, port.host_port);
            let taken = owners.get(&key).and_then(|list| list.iter().find(|owner| clash(owner.host_ip, port.host_ip)));
            let same =
                |other: &&PortMapping| (other.protocol, other.host_port) == key && clash(other.host_ip, port.host_ip);
            let twice = requested[..at].iter().any(same);
            let owner = taken.map(|owner| owner.sandbox.as_str()).or(twice.then_some(sandbox));
            if let Some(owner) = owner {
                return Err(Error::PortTaken {
                    port: port.host_port,
                    protocol: port.protocol,
                    address: port.host_ip.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()),
                    owner: owner.to_owned(),
                });
            }
        }
        for port in requested {
            let owner = Owner { host_ip: port.host_ip, sandbox: sandbox.to_owned() };
            owners.entry((port.protocol, port.host_port)).or_default().push(owner);
        }
        Ok(())
    }

    /// Maps a sandbox's reserved ports to its addresses.
    pub(crate) fn add_ports(&self, sandbox: &str, mappings: Vec<Mapping>) -> Result<(), Error> {
        let mut state = self.lock();
        state.desired.ports.insert(sandbox.to_owned(), mappings.clone());
        for family in FAMILIES {
            let elements = nft::port_elements(&of_family(&mappings, family));
            if elements.is_empty() {
                continue;
            }
            if !state.created[family as usize] {
                state.replace_family(family)?;
                continue;
            }
            let table = state.table(family);
            let mut transaction = Transaction::new(&table);
            nft::add_elements(&mut transaction, &elements);
            match transaction.commit(&mut state.socket) {
                Ok(()) => {}
                Err(refusal) if matches!(refusal.errno, Errno::NOENT | Errno::EXIST) => state.replace_family(family)?,
                Err(refusal) => return Err(refused("add ports to", &table, refusal)),
            }
        }
        Ok(())
    }

    /// Restores ports from the ledger; they reach the kernel when the table is next replaced.
    pub(crate) fn remember(&self, sandbox: &str, ports: &[PortMapping], mappings: Vec<Mapping>) {
        // Two sandboxes never get the same port, so a conflict means that a record was modified by another program.
        // That sandbox stays without its ports.
        if self.reserve(sandbox, ports).is_ok() && !mappings.is_empty() {
            self.lock().desired.ports.insert(sandbox.to_owned(), mappings);
        }
    }

    /// Removes a sandbox's ports from the kernel, then releases them.
    pub(crate) fn remove_ports(&self, sandbox: &str) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(mappings) = state.desired.ports.remove(sandbox) {
            for family in FAMILIES {
                let elements = nft::port_elements(&of_family(&mappings, family));
                let table = state.table(family);
                let mut transaction = Transaction::new(&table);
                nft::delete_elements(&mut transaction, &elements);
                match transaction.commit(&mut state.socket) {
                    Ok(()) => {}
                    // Some of the elements were missing, so the transaction deleted none of them. Replacing the table
                    // removes the rest.
                    Err(refusal) if refusal.errno == Errno::NOENT => state.replace_family(family)?,
                    Err(refusal) => {
                        state.desired.ports.insert(sandbox.to_owned(), mappings);
                        return Err(refused("delete ports from", &table, refusal));
                    }
                }
            }
        }
        state.desired.owners.retain(|_, owners| {
            owners.retain(|owner| owner.sandbox != sandbox);
            !owners.is_empty()
        });
        Ok(())
    }

    /// Returns the sandboxes that have ports.
    pub(crate) fn sandboxes(&self) -> BTreeSet<String> {
        let state = self.lock();
        let owners = state.desired.owners.values().flatten().map(|owner| owner.sandbox.clone());
        owners.chain(state.desired.ports.keys().cloned()).collect()
    }

    /// Compares the kernel's tables with the desired state, and replaces a table that differs.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let mut state = self.lock();
        for family in FAMILIES.into_iter().filter(|f| state.desired.needs(*f)).collect::<Vec<_>>() {
            let desired: BTreeSet<Element> = state.desired.elements(family).into_iter().collect();
            let table = state.table(family);
            let same = nft::dump(&mut state.socket, &table).is_ok_and(|actual| actual == desired);
            if !same {
                state.replace_family(family)?;
            }
        }
        Ok(())
    }

    /// Deletes the tables and clears the desired state.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let mut state = self.lock();
        state.desired = DesiredState::default();
        state.created = [false; 2];
        for table in state.tables.clone() {
            nft::delete_table(&table).commit(&mut state.socket).map_err(|r| refused("delete", &table, r))?;
        }
        Ok(())
    }
}

impl State {
    fn table(&self, family: Family) -> Table {
        self.tables[family as usize].clone()
    }

    fn replace(&mut self) -> Result<(), Error> {
        for family in FAMILIES {
            if self.desired.needs(family) {
                self.replace_family(family)?;
            }
        }
        Ok(())
    }

    fn replace_family(&mut self, family: Family) -> Result<(), Error> {
        if !self.desired.needs(family) && !self.created[family as usize] {
            return Ok(());
        }
        let elements = self.desired.elements(family);
        let table = self.table(family);
        nft::create(&table, &elements).commit(&mut self.socket).map_err(|r| refused("replace", &table, r))?;
        self.created[family as usize] = true;
        Ok(())
    }
}
