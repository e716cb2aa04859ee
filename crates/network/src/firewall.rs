//! What our nftables tables are to hold, and the kernel's likeness of it.
//!
//! The wanted state is in memory, rebuilt from the ledger at start. A change goes to the kernel as elements; when the
//! table is not there or not as we left it (another program flushed it), it is replaced whole, in one transaction.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use crate::{
    Error, PortMapping, Protocol,
    netlink::{Refusal, Socket},
    nft::{self, Element, Family, Mapping, Table, Transaction},
    subnet::Subnet,
};

/// Our tables.
#[derive(Debug)]
pub(crate) struct Firewall {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket: Socket,
    tables: [Table; 2],
    wanted: Wanted,
    /// Families whose table is in the kernel, as far as we know.
    made: [bool; 2],
}

#[derive(Debug, Default)]
struct Wanted {
    bridges: BTreeSet<String>,
    pods: Vec<Subnet>,
    masquerade: Vec<Subnet>,
    ports: BTreeMap<String, Vec<Mapping>>,
    owners: HashMap<(Protocol, u16), Vec<Owner>>,
}

/// Who has a port, and on which address.
#[derive(Debug)]
struct Owner {
    host_ip: Option<IpAddr>,
    sandbox: String,
}

impl Wanted {
    fn elements(&self, family: Family) -> Vec<Element> {
        let of = |subnets: &[Subnet]| -> Vec<Subnet> {
            subnets.iter().copied().filter(|s| Family::of(s.address) == family).collect()
        };
        let mut elements = nft::bridge_elements(self.bridges.iter().map(String::as_str));
        elements.extend(nft::subnet_elements("pods", &of(&self.pods)));
        elements.extend(nft::subnet_elements("masquerade", &of(&self.masquerade)));
        for mappings in self.ports.values() {
            elements.extend(nft::port_elements(&of_family(mappings, family)));
        }
        elements
    }

    fn needs(&self, family: Family) -> bool {
        self.pods.iter().any(|s| Family::of(s.address) == family)
            || self.ports.values().flatten().any(|m| Family::of(m.address) == family)
    }
}

/// Whether one packet could be meant for both: no address is every address, an unspecified one every address of its
/// family.
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
    /// In the network namespace of the calling thread, for the daemon that has this state.
    pub(crate) fn open(state: &Path) -> Result<Self, Error> {
        let socket = Socket::netfilter().map_err(|e| Error::kernel("open", "nftables socket", e))?;
        let tables = FAMILIES.map(|family| Table::of(state, family));
        Ok(Self { state: Mutex::new(State { socket, tables, wanted: Wanted::default(), made: [false; 2] }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bridge with its subnets, and whether what leaves them is masqueraded.
    pub(crate) fn add_network(&self, bridge: &str, subnets: &[Subnet], masquerade: bool) -> Result<(), Error> {
        let mut state = self.lock();
        let mut changed = state.wanted.bridges.insert(bridge.to_owned());
        let mut add = |list: &mut Vec<Subnet>| {
            for subnet in subnets.iter().map(|s| s.masked()) {
                if !list.contains(&subnet) {
                    list.push(subnet);
                    changed = true;
                }
            }
        };
        add(&mut state.wanted.pods);
        if masquerade {
            add(&mut state.wanted.masquerade);
        }
        if changed { state.replace() } else { Ok(()) }
    }

    /// Takes ports for a sandbox, if no other has them. Nothing is in the kernel yet.
    pub(crate) fn reserve(&self, sandbox: &str, ports: &[PortMapping]) -> Result<(), Error> {
        let mut state = self.lock();
        let owners = &mut state.wanted.owners;
        let wanted: Vec<_> = ports.iter().filter(|port| port.host_port != 0).collect();
        for (at, port) in wanted.iter().enumerate() {
            let key = (port.protocol, port.host_port);
            let taken = owners.get(&key).and_then(|list| list.iter().find(|owner| clash(owner.host_ip, port.host_ip)));
            let same =
                |other: &&PortMapping| (other.protocol, other.host_port) == key && clash(other.host_ip, port.host_ip);
            let twice = wanted[..at].iter().any(same);
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
        for port in wanted {
            let owner = Owner { host_ip: port.host_ip, sandbox: sandbox.to_owned() };
            owners.entry((port.protocol, port.host_port)).or_default().push(owner);
        }
        Ok(())
    }

    /// Leads a sandbox's reserved ports to its addresses.
    pub(crate) fn add_ports(&self, sandbox: &str, mappings: Vec<Mapping>) -> Result<(), Error> {
        let mut state = self.lock();
        state.wanted.ports.insert(sandbox.to_owned(), mappings.clone());
        for family in FAMILIES {
            let elements = nft::port_elements(&of_family(&mappings, family));
            if elements.is_empty() {
                continue;
            }
            if !state.made[family as usize] {
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

    /// Remembers ports from the ledger; they reach the kernel with the next replacement.
    pub(crate) fn remember(&self, sandbox: &str, ports: &[PortMapping], mappings: Vec<Mapping>) {
        // Two sandboxes never got the same port, so a refusal is of a record that someone changed: it stays without.
        if self.reserve(sandbox, ports).is_ok() && !mappings.is_empty() {
            self.lock().wanted.ports.insert(sandbox.to_owned(), mappings);
        }
    }

    /// Takes a sandbox's ports out of the kernel, then gives them up.
    pub(crate) fn remove_ports(&self, sandbox: &str) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(mappings) = state.wanted.ports.remove(sandbox) {
            for family in FAMILIES {
                let elements = nft::port_elements(&of_family(&mappings, family));
                let table = state.table(family);
                let mut transaction = Transaction::new(&table);
                nft::delete_elements(&mut transaction, &elements);
                match transaction.commit(&mut state.socket) {
                    Ok(()) => {}
                    // Not all of them were there, and then none was deleted; they must not stay.
                    Err(refusal) if refusal.errno == Errno::NOENT => state.replace_family(family)?,
                    Err(refusal) => {
                        state.wanted.ports.insert(sandbox.to_owned(), mappings);
                        return Err(refused("delete ports from", &table, refusal));
                    }
                }
            }
        }
        state.wanted.owners.retain(|_, owners| {
            owners.retain(|owner| owner.sandbox != sandbox);
            !owners.is_empty()
        });
        Ok(())
    }

    /// Sandboxes that have ports.
    pub(crate) fn sandboxes(&self) -> BTreeSet<String> {
        let state = self.lock();
        let owners = state.wanted.owners.values().flatten().map(|owner| owner.sandbox.clone());
        owners.chain(state.wanted.ports.keys().cloned()).collect()
    }

    /// Compares what the kernel has with what it is to have, and replaces a table that differs.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let mut state = self.lock();
        for family in FAMILIES.into_iter().filter(|f| state.wanted.needs(*f)).collect::<Vec<_>>() {
            let wanted: BTreeSet<Element> = state.wanted.elements(family).into_iter().collect();
            let table = state.table(family);
            let same = nft::dump(&mut state.socket, &table).is_ok_and(|there| there == wanted);
            if !same {
                state.replace_family(family)?;
            }
        }
        Ok(())
    }

    /// Deletes the tables.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let mut state = self.lock();
        state.wanted = Wanted::default();
        state.made = [false; 2];
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
            if self.wanted.needs(family) {
                self.replace_family(family)?;
            }
        }
        Ok(())
    }

    fn replace_family(&mut self, family: Family) -> Result<(), Error> {
        if !self.wanted.needs(family) && !self.made[family as usize] {
            return Ok(());
        }
        let elements = self.wanted.elements(family);
        let table = self.table(family);
        nft::create(&table, &elements).commit(&mut self.socket).map_err(|r| refused("replace", &table, r))?;
        self.made[family as usize] = true;
        Ok(())
    }
}
