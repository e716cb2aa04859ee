//! The networks that are measured.

use serde::Serialize;
use serde_json::{Value, json};

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum List {
    /// Bridge with masquerading, and a host port.
    Bridge,
    /// Veth pair that the node routes to, with masquerading.
    Ptp,
    /// Macvlan on a link of the node.
    Macvlan,
    /// Bridge, with tuning and a limit of what the pod receives after it.
    Chain,
}

impl List {
    pub(super) const ALL: [Self; 4] = [Self::Bridge, Self::Ptp, Self::Macvlan, Self::Chain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Ptp => "ptp",
            Self::Macvlan => "macvlan",
            Self::Chain => "chain",
        }
    }

    /// Returns the configuration list.
    pub(super) fn config(self) -> Value {
        let ipam = json!({"type": "host-local", "dataDir": "/run/leases", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "10.77.0.0/16"}]]});
        let bridge = json!({"type": "bridge", "bridge": "bench0", "isGateway": true, "ipMasq": true,
            "ipMasqBackend": "nftables", "hairpinMode": true, "ipam": ipam});
        let portmap = json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
        let plugins = match self {
            Self::Bridge => vec![bridge, portmap],
            Self::Ptp => vec![json!({"type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables", "ipam": ipam})],
            Self::Macvlan => vec![json!({"type": "macvlan", "master": "up0", "ipam": ipam})],
            Self::Chain => vec![
                bridge,
                json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}),
                json!({"type": "bandwidth", "ingressRate": 800_000_000, "ingressBurst": 800_000_000}),
                portmap,
            ],
        };
        json!({"cniVersion": "1.0.0", "name": "bench", "plugins": plugins})
    }

    /// Reports whether a host port of each pod is mapped.
    pub(super) fn maps_ports(self) -> bool {
        matches!(self, Self::Bridge | Self::Chain)
    }
}
