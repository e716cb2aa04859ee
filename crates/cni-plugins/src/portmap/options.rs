//! Options of `portmap`, and the ports that the engine requests.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Request};

/// Most ports of a pod.
const PORTS_MAX: usize = 4096;
/// Options that only other backends have, or that are not supported here.
const UNSUPPORTED: [&str; 3] = ["externalSetMarkChain", "conditionsV4", "conditionsV6"];

/// Parsed options.
#[derive(Debug)]
pub(super) struct Options {
    /// Whether packets of the pod to itself, and of the node's loopback address, are masqueraded.
    pub(super) masquerades: bool,
    /// Whether all packets to the ports are masqueraded.
    pub(super) masquerades_all: bool,
    pub(super) ports: Vec<Port>,
}

/// A port of the node that leads to one of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Number of the protocol in an IP header.
    pub(super) protocol: u8,
    /// Address of the node; `None` for all.
    pub(super) address: Option<IpAddr>,
    /// Whether the engine named an address that is not one of a family: then the other family has no mapping.
    pub(super) family: Option<bool>,
    pub(super) node: u16,
    pub(super) pod: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    host_port: u16,
    container_port: u16,
    #[serde(default)]
    protocol: String,
    #[serde(default, rename = "hostIP")]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    backend: String,
    snat: Option<bool>,
    #[serde(default)]
    masq_all: bool,
    mark_masq_bit: Option<i64>,
    #[serde(default)]
    runtime_config: Runtime,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    #[serde(default)]
    port_mappings: Vec<RawPort>,
}

/// Reports whether the configuration has only options that are supported.
pub(crate) fn is_supported(config: &serde_json::Map<String, Value>) -> bool {
    !UNSUPPORTED.iter().any(|key| config.get(*key).is_some_and(|value| !is_empty(value)))
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_str().is_some_and(str::is_empty)
}

impl Options {
    pub(super) fn parse(request: &Request) -> Result<Self, Error> {
        if !is_supported(&request.config) {
            let reason = format!("{} are not supported; use the reference plugin", UNSUPPORTED.join(", "));
            return Err(Error::config("portmap", reason));
        }
        let raw: Raw = request.options()?;
        if !matches!(raw.backend.as_str(), "" | "iptables" | "nftables") {
            return Err(Error::config("backend", format!("{:?} is unknown", raw.backend)));
        }
        if raw.mark_masq_bit.is_some_and(|bit| !(0..32).contains(&bit)) {
            return Err(Error::config("markMasqBit", "is not from 0 to 31"));
        }
        let ports = raw.runtime_config.port_mappings;
        if ports.len() > PORTS_MAX {
            return Err(Error::config("portMappings", format!("more than {PORTS_MAX}")));
        }
        Ok(Self {
            masquerades: raw.snat.unwrap_or(true),
            masquerades_all: raw.masq_all,
            ports: ports.iter().map(RawPort::parse).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the node's UDP ports.
    pub(super) fn udp_ports(&self) -> Vec<u16> {
        const UDP: u8 = 17;
        self.ports.iter().filter(|port| port.protocol == UDP).map(|port| port.node).collect()
    }
}

impl RawPort {
    fn parse(&self) -> Result<Port, Error> {
        let invalid = |reason: String| Error::config("portMappings", reason);
        if self.host_port == 0 || self.container_port == 0 {
            return Err(invalid("a port is zero".into()));
        }
        let protocol = match self.protocol.to_ascii_lowercase().as_str() {
            "" | "tcp" => 6,
            "udp" => 17,
            "sctp" => 132,
            other => return Err(invalid(format!("protocol {other:?} is not one of tcp, udp, sctp"))),
        };
        let address = match self.address.as_str() {
            "" => None,
            text => Some(text.parse::<IpAddr>().map_err(|_| invalid(format!("{text:?} is not an address")))?),
        };
        Ok(Port {
            protocol,
            address: address.filter(|address| !address.is_unspecified()),
            family: address.map(|address| address.is_ipv4()),
            node: self.host_port,
            pod: self.container_port,
        })
    }
}
