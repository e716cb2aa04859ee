//! Definitions of named overlays, which the nodes have in common in etcd.
//!
//! ```text
//! <prefix>/networks/NAME     the definition
//! <prefix>/vnis/VNI          the name of the network that has this identifier
//! <prefix>/LIST/subnets/…    claims of nodes (keys.rs); while a node joins `joining-ADDRESS`, with a lease of its own
//! ```
//! The first two are created and deleted in one transaction. A definition is deleted with the last claim: nodes that join
//! make a claim in the transaction that finds the definition, so none of them joins a network that is being deleted.

use std::{net::IpAddr, time::Duration};

use etcd::{Change, Client, Condition, Lease};
use overlay::EtcdSettings;
use rtnl::subnet::Subnet;
use serde::{Deserialize, Serialize};

use crate::{
    Error, NetworkDefinition,
    named::{Options, is_hex_id, is_name, list_name},
};

/// Longest definition in bytes.
const VALUE_MAX: usize = 16 << 10;
/// Time within which the agent of a node that joins has to claim a subnet, before another node may delete the network.
const JOIN_TTL: Duration = Duration::from_secs(300);

/// What all nodes have to know of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) vni: u32,
    pub(crate) subnets: Vec<Subnet>,
    /// Length of the prefix of a node's subnet, for each subnet.
    pub(crate) subnet_lengths: Vec<u8>,
    #[serde(default)]
    pub(crate) encrypted: bool,
    pub(crate) mtu: Option<u32>,
}

impl Shared {
    /// Returns what a node wrote, or would write, of a network that it has.
    pub(super) fn of(definition: &NetworkDefinition) -> Result<Self, String> {
        let Options::Overlay(options) = definition.parsed_options()? else {
            return Err("is not an overlay".into());
        };
        Ok(Self {
            id: definition.id.clone(),
            name: definition.name.clone(),
            vni: options.vni.ok_or("option vni is missing")?,
            subnets: definition.subnets.iter().map(|pool| pool.subnet).collect(),
            subnet_lengths: options.subnet_lengths,
            encrypted: options.encrypted.unwrap_or(false),
            mtu: options.mtu,
        })
    }
}

/// Definitions in etcd, for a node.
pub(crate) struct Definitions<'a> {
    client: &'a Client,
    prefix: &'a str,
    node: IpAddr,
}

/// Returns the key by which a node joins a network, until its agent has claimed a subnet. `prefix` is that of all claims.
pub(super) fn joining_key(prefix: &str, node: IpAddr) -> String {
    format!("{prefix}joining-{node}")
}

/// A definition, and the revision of its last change.
pub(crate) struct Found {
    pub(crate) definition: Shared,
    revision: i64,
}

/// Why a definition was not created.
pub(crate) enum Conflict {
    /// Another network has the identifier.
    Vni,
    /// Another network was created at the same time.
    Other,
}

impl<'a> Definitions<'a> {
    pub(crate) fn new(client: &'a Client, settings: &'a EtcdSettings, node: IpAddr) -> Self {
        Self { client, prefix: &settings.prefix, node }
    }

    fn name_key(&self, name: &str) -> String {
        format!("{}/networks/{name}", self.prefix)
    }

    fn vni_key(&self, vni: u32) -> String {
        format!("{}/vnis/{vni}", self.prefix)
    }

    fn claims_key(&self, definition: &Shared) -> String {
        format!("{}/{}/subnets/", self.prefix, list_name(&definition.id))
    }

    /// Returns the definition of a name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Found>, Error> {
        let entry = self.client.get(&self.name_key(name)).await.map_err(|error| failed("read", name, &error))?;
        let Some(entry) = entry else { return Ok(None) };
        let definition = parse(name, &entry.value).map_err(|reason| damaged(name, &reason))?;
        Ok(Some(Found { definition, revision: entry.mod_revision }))
    }

    /// Returns the address of the node.
    pub(crate) fn node(&self) -> IpAddr {
        self.node
    }

    fn names_key(&self) -> String {
        format!("{}/networks/", self.prefix)
    }

    /// Returns all definitions, and the revision of the cluster.
    pub(crate) async fn all(&self) -> Result<(Vec<Shared>, i64), Error> {
        let prefix = self.names_key();
        let range = self.client.range(&prefix).await.map_err(|error| failed("list", "all", &error))?;
        let definitions = range.entries.iter().filter_map(|entry| {
            let name = std::str::from_utf8(&entry.key).ok()?.strip_prefix(&prefix)?;
            parse(name, &entry.value).ok()
        });
        Ok((definitions.collect(), range.revision))
    }

    /// Creates a definition, with this node joining, if no network was created since a revision.
    pub(crate) async fn create(&self, definition: &Shared, revision: i64) -> Result<Result<Lease, Conflict>, Error> {
        let fail = |error: etcd::Error| failed("create", &definition.name, &error);
        let (name, vni) = (self.name_key(&definition.name), self.vni_key(definition.vni));
        let value = serde_json::to_vec(definition).map_err(|error| damaged(&definition.name, &error.to_string()))?;
        let lease = self.client.grant(JOIN_TTL).await.map_err(fail)?;
        let joining = self.joining(definition);
        let changes = [
            Change::Put(&name, &value, None),
            Change::Put(&vni, definition.name.as_bytes(), None),
            Change::Put(&joining, b"", Some(lease)),
        ];
        let names = self.names_key();
        let conditions =
            [Condition::Absent(&name), Condition::Absent(&vni), Condition::UnchangedBelow(&names, revision)];
        if self.client.change(&conditions, &changes).await.map_err(fail)? {
            return Ok(Ok(lease));
        }
        self.end(lease).await;
        let has_vni = self.client.get(&vni).await.map_err(fail)?.is_some();
        Ok(Err(if has_vni { Conflict::Vni } else { Conflict::Other }))
    }

    /// Keeps a network from being deleted until this node has claimed a subnet; `None` if it was deleted.
    pub(crate) async fn join(&self, found: &Found) -> Result<Option<Lease>, Error> {
        let name = &found.definition.name;
        let fail = |error: etcd::Error| failed("join", name, &error);
        let lease = self.client.grant(JOIN_TTL).await.map_err(fail)?;
        let (key, joining) = (self.name_key(name), self.joining(&found.definition));
        let condition = [Condition::Unchanged(&key, found.revision)];
        if self.client.change(&condition, &[Change::Put(&joining, b"", Some(lease))]).await.map_err(fail)? {
            return Ok(Some(lease));
        }
        self.end(lease).await;
        Ok(None)
    }

    fn joining(&self, definition: &Shared) -> String {
        joining_key(&self.claims_key(definition), self.node)
    }

    /// Ends a lease whose keys are not needed. If that fails, it expires.
    pub(crate) async fn end(&self, lease: Lease) {
        let _ = self.client.revoke(lease).await;
    }

    /// Writes the definition of a network that this node has if it is missing: the cluster was restored from a backup, or
    /// other nodes deleted the network while this one was away. Fails if another network has the name.
    pub(super) async fn ensure(&self, definition: &Shared) -> Result<(), String> {
        let found = self.find(&definition.name).await.map_err(|error| error.to_string())?;
        if let Some(found) = found {
            return match found.definition.id == definition.id {
                true if found.definition.encrypted != definition.encrypted => {
                    Err(format!("etcd has \"encrypted\": {} for it, unlike this node", found.definition.encrypted))
                }
                true => Ok(()),
                false => Err(format!(
                    "another network of this name is in etcd; remove this one: pinion network rm {}",
                    definition.name
                )),
            };
        }
        let (name, vni) = (self.name_key(&definition.name), self.vni_key(definition.vni));
        let value = serde_json::to_vec(definition).map_err(|error| error.to_string())?;
        let changes = [Change::Put(&name, &value, None), Change::Put(&vni, definition.name.as_bytes(), None)];
        let written = self.client.change(&[Condition::Absent(&name), Condition::Absent(&vni)], &changes).await;
        match written.map_err(|error| error.to_string())? {
            true => Ok(()),
            false => Err(format!("another network in etcd has the vni {}", definition.vni)),
        }
    }

    /// Deletes the definition of a name if it has this id and no node uses the network; returns whether it is gone.
    pub(crate) async fn delete_unused(&self, name: &str, id: &str) -> Result<bool, Error> {
        let Some(found) = self.find(name).await? else { return Ok(true) };
        if found.definition.id != id {
            return Ok(true);
        }
        let (key, vni) = (self.name_key(name), self.vni_key(found.definition.vni));
        let claims = self.claims_key(&found.definition);
        let conditions = [Condition::Unchanged(&key, found.revision), Condition::NoneBelow(&claims)];
        let deleted = self.client.change(&conditions, &[Change::Delete(&key), Change::Delete(&vni)]).await;
        deleted.map_err(|error| failed("delete", name, &error))
    }
}

/// Parses a definition that another node wrote.
fn parse(name: &str, value: &[u8]) -> Result<Shared, String> {
    if value.len() > VALUE_MAX {
        return Err(format!("it is longer than {VALUE_MAX} bytes"));
    }
    let shared: Shared = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if shared.name != name || !is_name(name) || !is_hex_id(&shared.id) {
        return Err("its name or id is not valid".into());
    }
    let is_wrong =
        |subnet: &Subnet| *subnet != subnet.masked() || subnet.address.is_loopback() || subnet.address.is_multicast();
    let is_one_family = matches!(&shared.subnets[..], [a, b] if a.address.is_ipv4() == b.address.is_ipv4());
    if shared.subnets.is_empty() || shared.subnets.len() > 2 || is_one_family || shared.subnets.iter().any(is_wrong) {
        return Err("its subnets are not valid".into());
    }
    Ok(shared)
}

fn failed(operation: &'static str, network: &str, error: &etcd::Error) -> Error {
    Error::kernel(operation, format!("network {network} in etcd"), std::io::Error::other(error.to_string()))
}

fn damaged(network: &str, reason: &str) -> Error {
    Error::config(format!("network {network} in etcd"), reason.to_owned())
}
