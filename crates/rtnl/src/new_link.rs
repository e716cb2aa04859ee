//! Creates links of any kind in one message each, in another network namespace if requested.

use std::net::IpAddr;

use rustix::fd::{AsRawFd, BorrowedFd};

use crate::{
    link_header,
    netlink::{Batch, CREATE, EXCL},
    vxlan,
};

const RTM_NEWLINK: u16 = 16;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// A link that is to be created.
#[derive(Clone, Debug)]
pub struct NewLink<'a> {
    /// Name in the namespace of the link.
    pub name: &'a str,
    /// Kind, with its options.
    pub kind: Kind<'a>,
    /// MAC address; `None` for one that the kernel chooses.
    pub mac: Option<[u8; 6]>,
    /// Maximum transmission unit; `None` for the kernel's default.
    pub mtu: Option<u32>,
    /// Length of the transmit queue; `None` for the kernel's default.
    pub transmit_queue: Option<u32>,
    /// Index of the lower link, in the namespace of the socket.
    pub parent: Option<u32>,
    /// Index of the bridge or VRF that the link becomes a port of.
    pub master: Option<u32>,
    /// Network namespace of the link; `None` for that of the socket.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Whether the link is set up.
    pub up: bool,
}

/// Kind of a new link.
#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// Bridge, with VLAN filtering or without.
    Bridge {
        /// Whether the bridge filters by VLAN.
        vlan_filtering: bool,
    },
    /// Virtual Ethernet pair; the peer has its own name, MAC address and namespace, and the MTU of this end.
    Veth {
        /// Name of the peer.
        peer: &'a str,
        /// MAC address of the peer.
        peer_mac: Option<[u8; 6]>,
        /// Network namespace of the peer; `None` for that of the socket.
        peer_namespace: Option<BorrowedFd<'a>>,
        /// Whether the peer is set up.
        peer_up: bool,
    },
    /// MAC-based VLAN.
    Macvlan {
        /// One of `MACVLAN_MODE_*`.
        mode: u32,
        /// Length of the queue of broadcast frames (Linux 5.11).
        broadcast_queue: Option<u32>,
    },
    /// IP-based VLAN.
    Ipvlan {
        /// One of `IPVLAN_MODE_*`.
        mode: u16,
    },
    /// 802.1Q VLAN.
    Vlan {
        /// VLAN number.
        id: u16,
    },
    /// Dummy interface.
    Dummy,
    /// Intermediate functional block, for shaping what a link receives.
    Ifb,
    /// Virtual routing and forwarding.
    Vrf {
        /// Routing table of its ports.
        table: u32,
    },
    /// VXLAN tunnel endpoint (RFC 7348) that learns no addresses and floods nothing: frames leave only to the endpoints of
    /// [`Neighbor::Forwarding`](crate::Neighbor::Forwarding) entries.
    Vxlan {
        /// Network identifier, less than 2^24.
        id: u32,
        /// Address of this endpoint, from which tunnel packets are sent.
        local: IpAddr,
        /// UDP port of all endpoints.
        port: u16,
    },
    /// WireGuard (Linux 5.6), without a key and without peers.
    Wireguard,
}

impl Kind<'_> {
    /// Returns the name of the kind, which is also that of the kernel module except for VLANs (`8021q`).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bridge { .. } => "bridge",
            Self::Veth { .. } => "veth",
            Self::Macvlan { .. } => "macvlan",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Vlan { .. } => "vlan",
            Self::Dummy => "dummy",
            Self::Ifb => "ifb",
            Self::Vrf { .. } => "vrf",
            Self::Vxlan { .. } => "vxlan",
            Self::Wireguard => "wireguard",
        }
    }
}

impl<'a> NewLink<'a> {
    /// Describes a link that is down, in the namespace of the socket.
    pub fn new(name: &'a str, kind: Kind<'a>) -> Self {
        Self {
            name,
            kind,
            mac: None,
            mtu: None,
            transmit_queue: None,
            parent: None,
            master: None,
            namespace: None,
            up: false,
        }
    }

    /// Appends the message that creates the link. The kernel refuses a name that exists (`EEXIST`) and a kind that it
    /// does not have (`EOPNOTSUPP`).
    pub fn add(&self, batch: &mut Batch) {
        let flags = if self.up { IFF_UP } else { 0 };
        batch.message(RTM_NEWLINK, CREATE | EXCL, &link_header(0, flags, flags), |m| {
            m.text(IFLA_IFNAME, self.name);
            attributes(m, self.mac, self.mtu, self.namespace);
            let numbers = [(IFLA_TXQLEN, self.transmit_queue), (IFLA_LINK, self.parent), (IFLA_MASTER, self.master)];
            for (kind, number) in numbers {
                if let Some(number) = number {
                    m.number(kind, number);
                }
            }
            m.nest(IFLA_LINKINFO, |m| {
                m.text(IFLA_INFO_KIND, self.kind.name());
                self.data(m);
            });
        });
    }

    fn data(&self, m: &mut Batch) {
        const IFLA_BR_VLAN_FILTERING: u16 = 7;
        const IFLA_MACVLAN_MODE: u16 = 1;
        const IFLA_MACVLAN_BC_QUEUE_LEN: u16 = 7;
        const IFLA_IPVLAN_MODE: u16 = 1;
        const IFLA_VLAN_ID: u16 = 1;
        const IFLA_VRF_TABLE: u16 = 1;
        match &self.kind {
            Kind::Bridge { vlan_filtering: true } => {
                m.nest(IFLA_INFO_DATA, |m| m.byte(IFLA_BR_VLAN_FILTERING, 1));
            }
            Kind::Veth { peer, peer_mac, peer_namespace, peer_up } => m.nest(IFLA_INFO_DATA, |m| {
                let flags = if *peer_up { IFF_UP } else { 0 };
                m.nest_with_header(VETH_INFO_PEER, &link_header(0, flags, flags), |m| {
                    m.text(IFLA_IFNAME, peer);
                    attributes(m, *peer_mac, self.mtu, *peer_namespace);
                });
            }),
            Kind::Macvlan { mode, broadcast_queue } => m.nest(IFLA_INFO_DATA, |m| {
                m.number(IFLA_MACVLAN_MODE, *mode);
                if let Some(length) = broadcast_queue {
                    m.number(IFLA_MACVLAN_BC_QUEUE_LEN, *length);
                }
            }),
            Kind::Ipvlan { mode } => {
                m.nest(IFLA_INFO_DATA, |m| m.bytes(IFLA_IPVLAN_MODE, &mode.to_ne_bytes()));
            }
            Kind::Vlan { id } => m.nest(IFLA_INFO_DATA, |m| m.bytes(IFLA_VLAN_ID, &id.to_ne_bytes())),
            Kind::Vrf { table } => m.nest(IFLA_INFO_DATA, |m| m.number(IFLA_VRF_TABLE, *table)),
            Kind::Vxlan { id, local, port } => m.nest(IFLA_INFO_DATA, |m| vxlan::attributes(m, *id, *local, *port)),
            Kind::Bridge { .. } | Kind::Dummy | Kind::Ifb | Kind::Wireguard => {}
        }
    }
}

fn attributes(m: &mut Batch, mac: Option<[u8; 6]>, mtu: Option<u32>, namespace: Option<BorrowedFd<'_>>) {
    if let Some(mac) = mac {
        m.bytes(IFLA_ADDRESS, &mac);
    }
    if let Some(mtu) = mtu {
        m.number(IFLA_MTU, mtu);
    }
    if let Some(namespace) = namespace {
        // A descriptor is never negative.
        m.number(IFLA_NET_NS_FD, namespace.as_raw_fd().cast_unsigned());
    }
}
