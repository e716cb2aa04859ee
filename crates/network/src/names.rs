//! Names of pods in named networks, for the resolver of each pod.
//!
//! An entry has a source: this node, or another one, such as a store that the nodes of an overlay share. A source
//! replaces all of its entries at once ([`NameTable::replace`]) or one at a time. Look-ups take a read lock for a few
//! instructions, and never wait for anything else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use crate::{
    attachment_key::AttachmentKey,
    ledger::Record,
    named::{INTERNAL_KEY, NAME_KEY},
};

/// The source of the pods of this node.
const LOCAL: &str = "";
/// Stands for every network that is not a named one. No list has an empty name.
const OTHER: &str = "";
/// Number of characters of an id that people use as a name, as in Docker.
const SHORT: usize = 12;
/// Maximum number of addresses in one response: more do not fit into 512 bytes.
const ADDRESSES_MAX: usize = 16;

/// A pod in a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Names, the first one for reverse look-ups.
    pub names: Vec<String>,
    /// Addresses in the network.
    pub addresses: Vec<IpAddr>,
}

/// Names and addresses by network. The key of a network is [`NetworkDefinition::list_name`](crate::NetworkDefinition).
#[derive(Debug, Default)]
pub struct NameTable {
    tables: RwLock<Tables>,
    /// Number of changes by this node.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Tables {
    networks: HashMap<String, Table>,
    /// Networks of each pod of this node, by sandbox id and interface.
    attachments: HashMap<String, BTreeMap<String, String>>,
    /// Names of the containers of each pod of this node, by sandbox id and container id.
    containers: HashMap<String, BTreeMap<String, Vec<String>>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Name that people know the network by.
    title: String,
    /// Whether its pods cannot reach anything else.
    is_internal: bool,
    /// By source and key.
    endpoints: BTreeMap<(String, String), Endpoint>,
    by_name: HashMap<String, Vec<IpAddr>>,
    by_address: HashMap<IpAddr, String>,
}

impl NameTable {
    /// Adds a pod of a source to a network, or replaces it.
    pub fn set(&self, network: &str, (source, key): (&str, &str), endpoint: Endpoint) {
        let mut tables = self.write();
        let table = tables.networks.entry(network.to_owned()).or_default();
        table.endpoints.insert((source.to_owned(), key.to_owned()), endpoint);
        tables.index(network);
    }

    /// Removes a pod of a source from a network.
    pub fn remove(&self, network: &str, (source, key): (&str, &str)) {
        self.write().remove(network, source, key);
    }

    /// Replaces all pods of a source in a network.
    pub fn replace(&self, network: &str, source: &str, endpoints: impl IntoIterator<Item = (String, Endpoint)>) {
        let mut tables = self.write();
        let table = tables.networks.entry(network.to_owned()).or_default();
        table.endpoints.retain(|(other, _), _| other != source);
        table.endpoints.extend(endpoints.into_iter().map(|(key, endpoint)| ((source.to_owned(), key), endpoint)));
        tables.index(network);
    }

    /// Replaces the pods of several sources, and removes those of sources that are neither this node nor listed.
    pub(crate) fn update(&self, network: &str, changed: Vec<(String, Vec<Endpoint>)>, sources: &BTreeSet<String>) {
        let replaced: BTreeSet<String> = changed.iter().map(|(source, _)| source.clone()).collect();
        let stays = |source: &String| source == LOCAL || (sources.contains(source) && !replaced.contains(source));
        let mut tables = self.write();
        let table = tables.networks.entry(network.to_owned()).or_default();
        table.endpoints.retain(|(source, _), _| stays(source));
        for (source, endpoints) in changed {
            let numbered = endpoints.into_iter().enumerate();
            table.endpoints.extend(numbered.map(|(n, endpoint)| ((source.clone(), n.to_string()), endpoint)));
        }
        tables.index(network);
    }

    /// Removes a network with the pods of all sources.
    pub(crate) fn forget(&self, network: &str) {
        self.write().networks.remove(network);
    }

    /// Returns a receiver that is notified of changes by this node.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the pods of this node in a network, with the names of their containers.
    pub(crate) fn local(&self, network: &str) -> Vec<Endpoint> {
        let tables = self.read();
        let endpoints = tables.networks.get(network).into_iter().flat_map(|table| &table.endpoints);
        let local = endpoints.filter(|((source, _), _)| source == LOCAL).map(|((_, key), endpoint)| {
            let mut endpoint = endpoint.clone();
            endpoint.names.extend(tables.names_of_containers(key).cloned());
            endpoint
        });
        local.collect()
    }

    fn note_change(&self) {
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Sets the names of a container of a pod; without a name they are removed.
    pub fn set_container(&self, sandbox: &str, container: &str, names: Vec<String>) {
        let mut tables = self.write();
        let containers = tables.containers.entry(sandbox.to_owned()).or_default();
        match names.is_empty() {
            true => drop(containers.remove(container)),
            false => drop(containers.insert(container.to_owned(), names)),
        }
        if containers.is_empty() {
            tables.containers.remove(sandbox);
        }
        tables.index_pod(sandbox);
        drop(tables);
        self.note_change();
    }

    /// Returns the addresses that a pod of this node gets for a name: those in the first of its networks that has the
    /// name. `None` if none has.
    #[must_use]
    pub fn addresses(&self, sandbox: &str, name: &str) -> Option<Vec<IpAddr>> {
        let tables = self.read();
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        tables.of_pod(sandbox).find_map(|table| {
            let title = table.title.to_ascii_lowercase();
            let within = name.strip_suffix(&title).and_then(|name| name.strip_suffix('.'));
            table.by_name.get(&name).or_else(|| table.by_name.get(within?)).cloned()
        })
    }

    /// Returns the name of an address in one of the networks of a pod of this node: `NAME.NETWORK`.
    #[must_use]
    pub fn name_of(&self, sandbox: &str, address: IpAddr) -> Option<String> {
        let tables = self.read();
        tables.of_pod(sandbox).find_map(|table| Some(format!("{}.{}", table.by_address.get(&address)?, table.title)))
    }

    /// Reports whether a pod may look up other names. False if all of its networks are internal, and without any network.
    #[must_use]
    pub fn is_forwarding(&self, sandbox: &str) -> bool {
        let tables = self.read();
        let networks = tables.attachments.get(sandbox);
        let is_open = |network: &String| tables.networks.get(network).is_none_or(|table| !table.is_internal);
        networks.is_some_and(|networks| networks.values().any(is_open))
    }

    /// Adds an attachment that was made, if it is one to a named network.
    pub(crate) fn attach(&self, record: &Record) {
        let (sandbox, key) = (record.pod.sandbox.as_str(), record.key());
        let Some((network, title)) = named(record) else {
            // Pods with such a network may look up names outside.
            let mut tables = self.write();
            let attachments = tables.attachments.entry(sandbox.to_owned()).or_default();
            return drop(attachments.insert(key.interface().to_owned(), OTHER.to_owned()));
        };
        let mut names = vec![record.pod.name.clone()];
        names.extend(record.selection.iter().flat_map(|selection| selection.aliases.clone()));
        names.extend(sandbox.get(..SHORT).map(str::to_owned));
        let mut tables = self.write();
        let table = tables.networks.entry(network.clone()).or_default();
        title.clone_into(&mut table.title);
        table.is_internal =
            record.list.as_ref().and_then(|list| list.get(INTERNAL_KEY)).is_some_and(|internal| internal == true);
        let endpoint = Endpoint { names, addresses: record.addresses.clone() };
        table.endpoints.insert((LOCAL.to_owned(), key.as_str().to_owned()), endpoint);
        let attachments = tables.attachments.entry(sandbox.to_owned()).or_default();
        attachments.insert(key.interface().to_owned(), network);
        tables.index_pod(sandbox);
        drop(tables);
        self.note_change();
    }

    /// Removes an attachment.
    pub(crate) fn detach(&self, key: &AttachmentKey) {
        let mut tables = self.write();
        let Some(attachments) = tables.attachments.get_mut(key.sandbox()) else { return };
        let network = attachments.remove(key.interface());
        if attachments.is_empty() {
            tables.attachments.remove(key.sandbox());
        }
        if let Some(network) = network {
            tables.remove(&network, LOCAL, key.as_str());
            drop(tables);
            self.note_change();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the list's name and the name that people know the network by; `None` if it is not a named network.
fn named(record: &Record) -> Option<(String, &str)> {
    let title = record.list.as_ref()?.get(NAME_KEY)?.as_str()?;
    Some((record.network()?.to_owned(), title))
}

impl Tables {
    /// Iterates over the networks of a pod in the order of its interfaces.
    fn of_pod(&self, sandbox: &str) -> impl Iterator<Item = &Table> {
        let networks = self.attachments.get(sandbox).into_iter().flat_map(BTreeMap::values);
        networks.filter_map(|network| self.networks.get(network))
    }

    /// Returns the names of the containers of a pod of this node, by the key of an attachment.
    fn names_of_containers(&self, key: &str) -> impl Iterator<Item = &String> {
        Self::names_of_containers_in(&self.containers, key)
    }

    fn names_of_containers_in<'a>(
        containers: &'a HashMap<String, BTreeMap<String, Vec<String>>>,
        key: &str,
    ) -> impl Iterator<Item = &'a String> + use<'a> {
        let sandbox = key.split('@').next().unwrap_or_default();
        containers.get(sandbox).into_iter().flat_map(BTreeMap::values).flatten()
    }

    fn remove(&mut self, network: &str, source: &str, key: &str) {
        let Some(table) = self.networks.get_mut(network) else { return };
        table.endpoints.remove(&(source.to_owned(), key.to_owned()));
        match table.endpoints.is_empty() {
            true => drop(self.networks.remove(network)),
            false => self.index(network),
        }
    }

    fn index_pod(&mut self, sandbox: &str) {
        let networks: Vec<String> =
            self.attachments.get(sandbox).into_iter().flat_map(BTreeMap::values).cloned().collect();
        networks.iter().for_each(|network| self.index(network));
    }

    fn index(&mut self, network: &str) {
        let Some(table) = self.networks.get_mut(network) else { return };
        table.index();
        let local = table.endpoints.iter().filter(|((source, _), _)| source == LOCAL);
        let mut additional = Vec::new();
        for ((_, key), endpoint) in local {
            let names = Self::names_of_containers_in(&self.containers, key);
            additional.extend(names.map(|name| (name.clone(), endpoint.addresses.clone())));
        }
        additional.into_iter().for_each(|(name, addresses)| add(&mut table.by_name, &name, &addresses));
    }
}

impl Table {
    fn index(&mut self) {
        let Self { endpoints, by_name, by_address, .. } = self;
        by_name.clear();
        by_address.clear();
        for endpoint in endpoints.values() {
            endpoint.names.iter().for_each(|name| add(by_name, name, &endpoint.addresses));
            let first = endpoint.names.first();
            by_address.extend(endpoint.addresses.iter().filter_map(|address| Some((*address, first?.clone()))));
        }
    }
}

fn add(by_name: &mut HashMap<String, Vec<IpAddr>>, name: &str, addresses: &[IpAddr]) {
    let all = by_name.entry(name.to_ascii_lowercase()).or_default();
    for address in addresses {
        if all.len() < ADDRESSES_MAX && !all.contains(address) {
            all.push(*address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn names_are_those_of_a_pods_networks() {
        let names = NameTable::default();
        let record = |sandbox: &str, name: &str, address: &str, network: &str| {
            let record = serde_json::json!({
                "pod": {"sandbox": sandbox, "namespace": "", "name": name, "uid": ""}, "ns_path": "/run/netns/x",
                "interface": "eth0", "list": {"name": format!("named-{network}"), "io.pinion.network": network},
                "addresses": [address], "ports": [], "all_ports": [], "result": null,
            });
            serde_json::from_value::<Record>(record).expect("a record")
        };
        let web = record("0123456789abcdef", "Web", "10.1.0.2", "shop");
        names.attach(&web);
        names.attach(&record("s2", "db", "10.1.0.3", "shop"));
        names.attach(&record("s3", "db", "10.2.0.3", "other"));
        names.set_container("s2", "c1", vec!["postgres".into()]);
        for (name, address) in
            [("web", "10.1.0.2"), ("WEB.shop.", "10.1.0.2"), ("0123456789ab", "10.1.0.2"), ("postgres", "10.1.0.3")]
        {
            assert_eq!(names.addresses("s2", name), Some(vec![ip(address)]), "{name}");
        }
        assert_eq!(names.addresses("s3", "web"), None, "another network");
        assert_eq!(names.addresses("s3", "db"), Some(vec![ip("10.2.0.3")]));
        assert_eq!(names.addresses("unknown", "db"), None);
        assert_eq!(names.name_of("s2", ip("10.1.0.2")).as_deref(), Some("Web.shop"));
        assert_eq!(names.name_of("s3", ip("10.1.0.2")), None);
        names.set(
            "named-shop",
            ("etcd", "far"),
            Endpoint { names: vec!["far".into()], addresses: vec![ip("10.1.0.9")] },
        );
        assert_eq!(names.addresses("s2", "far"), Some(vec![ip("10.1.0.9")]));
        assert_eq!(names.addresses("s2", "postgres"), Some(vec![ip("10.1.0.3")]), "another source changed");
        names.replace("named-shop", "etcd", []);
        assert_eq!(names.addresses("s2", "far"), None);
        names.set_container("s2", "c1", Vec::new());
        assert_eq!(names.addresses("s2", "postgres"), None);
        names.detach(&web.key());
        assert_eq!(names.addresses("s2", "web"), None);
    }
}
