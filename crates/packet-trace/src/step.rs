//! What is found on the way of a packet.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// One step of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Name of the pod; `None` on the node.
    pub pod: Option<String>,
    /// What is there.
    #[serde(flatten)]
    pub found: Found,
}

/// What a packet meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Found {
    /// A route.
    Route {
        /// Destination of the packet.
        destination: IpAddr,
        /// Type: `unicast`, `local`, `blackhole` and so on.
        kind: &'static str,
        /// Table that has the route.
        table: u32,
        /// Gateway, unless the destination is on the link.
        gateway: Option<IpAddr>,
        /// Source address that the route prefers.
        source: Option<IpAddr>,
        /// Link that the packet leaves through.
        link: String,
    },
    /// No route.
    NoRoute {
        /// Destination of the packet.
        destination: IpAddr,
        /// The kernel's error.
        reason: String,
    },
    /// The MAC address of the next hop.
    Neighbor {
        /// Address of the next hop.
        address: IpAddr,
        /// MAC address; `None` if nobody answered for the address.
        mac: Option<String>,
        /// Link on which it is.
        link: String,
    },
    /// A link that the packet is sent to or comes from.
    Link {
        /// Name.
        name: String,
        /// Kind, such as `veth`; empty for hardware.
        kind: String,
        /// Name of the bridge that it is a port of.
        bridge: Option<String>,
        /// Whether the packet is sent there, instead of received from there.
        sends: bool,
        /// Packets that were sent or received while this one was, by others, too.
        packets: u64,
        /// Packets that were dropped or damaged in the meantime.
        lost: u64,
    },
    /// The other end of a tunnel.
    Tunnel {
        /// Link of the tunnel.
        link: String,
        /// VXLAN network identifier; `None` for WireGuard.
        vni: Option<u32>,
        /// Address of the other node.
        endpoint: Option<IpAddr>,
    },
    /// A rule of nftables that matched.
    Rule {
        /// Family and name of the table.
        table: String,
        /// Chain.
        chain: String,
        /// Number of the rule in its table.
        handle: u64,
        /// The rule as nft(8) prints it, with its counter after the packet; `None` if nft is not installed.
        text: Option<String>,
        /// Verdict.
        verdict: String,
    },
    /// The policy of a base chain.
    Policy {
        /// Family and name of the table.
        table: String,
        /// Chain.
        chain: String,
        /// Verdict.
        verdict: String,
    },
    /// The packet got another source.
    Source {
        /// Before.
        from: SocketAddr,
        /// After.
        to: SocketAddr,
    },
    /// The packet got another destination.
    Destination {
        /// Before.
        from: SocketAddr,
        /// After.
        to: SocketAddr,
    },
    /// The packet arrived at the destination.
    Delivered,
    /// The packet was to arrive or to leave here, and is not seen any longer: what is not reported has dropped it, such as
    /// rules of iptables-legacy, of `netdev` or of tc, or BPF programs.
    Vanished,
}

impl Found {
    /// Reports whether the packet ends here.
    pub fn ends(&self) -> bool {
        match self {
            Self::NoRoute { .. } | Self::Neighbor { mac: None, .. } | Self::Vanished => true,
            Self::Route { kind, .. } => !matches!(*kind, "unicast" | "local" | "broadcast" | "multicast" | "anycast"),
            Self::Rule { verdict, .. } | Self::Policy { verdict, .. } => verdict == DROP,
            _ => false,
        }
    }
}

/// The verdict of a rule that drops the packet.
pub(crate) const DROP: &str = "drop";
