//! Pod networks. (contract stub)
#![allow(missing_docs, unused_variables, dead_code)]
use std::{collections::HashSet, net::IpAddr, path::{Path, PathBuf}};
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);
/// `[network]` of the daemon's configuration, already checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of CNI configuration lists (`/etc/cni/net.d`); none there: the built-in bridge.
    pub cni_conf_dir: PathBuf,
    pub cni_bin_dirs: Vec<PathBuf>,
    /// tmpfs folder for attachments, leases and the ledger of intents.
    pub state_dir: PathBuf,
    pub bridge: String,          // "pinion0"
    pub subnet: String,          // "10.85.0.0/16"; optional IPv6 below
    pub subnet6: Option<String>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol { Tcp, Udp, Sctp }
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping { pub protocol: Protocol, pub container_port: u16, pub host_port: u16, pub host_ip: Option<IpAddr> }
/// Who is attached (CNI_ARGS and capability args are made of it).
#[derive(Clone, Debug)]
pub struct PodRef { pub sandbox: String, pub name: String, pub namespace: String, pub uid: String }
#[derive(Clone, Debug, Default)]
pub struct Attachment { pub ips: Vec<IpAddr>, pub interface: String, pub dns_servers: Vec<String>, pub dns_search: Vec<String>, pub dns_options: Vec<String>, /// The raw CNI result, for `inspect`.
    pub raw: serde_json::Value }
pub struct Network {}
impl Network {
    pub fn open(config: Config) -> Result<Self, Error> { todo!() }
    /// Ready, or why not (`cni config /etc/cni/net.d/10-x.conflist: not JSON at line 3 …`). Re-reads on change.
    pub fn ready(&self) -> Result<(), Error> { todo!() }
    /// Which network pods get: its name and the kind (`bridge (built in)`, `cni: 10-flannel.conflist`).
    pub fn describe(&self) -> String { todo!() }
    /// Attaches; on failure everything is undone. `ns_path` is the conventional path.
    pub async fn attach(&self, pod: &PodRef, ns: &netns::Namespace, ns_path: &Path, ports: &[PortMapping]) -> Result<Attachment, Error> { todo!() }
    /// Detaches by the recorded attachment; unknown ids succeed; works when the namespace is gone.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> { todo!() }
    /// Removes what belongs to no living sandbox (links, addresses, nft elements, records).
    pub async fn reconcile(&self, living: &HashSet<String>) -> Result<(), Error> { todo!() }
    /// Removes bridge and nft table if no pod is attached (for tests and uninstall).
    pub async fn teardown(&self) -> Result<(), Error> { todo!() }
    /// Interface counters of a namespace: rx/tx bytes, errors.
    pub fn counters(&self, ns: &netns::Namespace) -> Result<Vec<Counters>, Error> { todo!() }
}
#[derive(Clone, Debug, Default)]
pub struct Counters { pub interface: String, pub rx_bytes: u64, pub rx_errors: u64, pub tx_bytes: u64, pub tx_errors: u64 }
