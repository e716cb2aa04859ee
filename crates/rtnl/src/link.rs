//! Creates, changes and deletes links.

use rustix::fd::{AsRawFd, BorrowedFd};

use super::link_header;
use crate::netlink::{Batch, CREATE, EXCL};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const IFF_UP: u32 = 1;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_BRPORT_MODE: u16 = 4;
const VETH_INFO_PEER: u16 = 1;

/// Group of links that are to be deleted. The value is "pin!" in ASCII, chosen to be unused by others.
const LEAVING: u32 = 0x7069_6e21;

/// Parameters of a new bridge.
pub struct BridgeLink<'a> {
    /// Name.
    pub name: &'a str,
    /// MAC address.
    pub mac: [u8; 6],
    /// Maximum transmission unit; `None` for the kernel's default.
    pub mtu: Option<u32>,
}

/// Adds a bridge that is down, without multicast snooping, whose cost per port grows with the number of ports.
pub fn add_bridge(batch: &mut Batch, bridge: &BridgeLink<'_>) {
    batch.message(RTM_NEWLINK, CREATE | EXCL, &link_header(0, 0, 0), |m| {
        m.text(IFLA_IFNAME, bridge.name);
        m.bytes(IFLA_ADDRESS, &bridge.mac);
        if let Some(mtu) = bridge.mtu {
            m.number(IFLA_MTU, mtu);
        }
        m.nest(IFLA_LINKINFO, |m| {
            m.text(IFLA_INFO_KIND, "bridge");
            m.nest(IFLA_INFO_DATA, |m| m.byte(IFLA_BR_MCAST_SNOOPING, 0));
        });
    });
}

/// Parameters of a new veth pair: one end on a bridge, the other in a namespace.
pub struct Veth<'a> {
    /// Name of the end that stays in the namespace of the socket.
    pub host: &'a str,
    /// Index of the bridge that it becomes a port of.
    pub bridge: u32,
    /// Name of the other end.
    pub peer: &'a str,
    /// MAC address of the other end.
    pub mac: [u8; 6],
    /// Maximum transmission unit of both ends; `None` for the kernel's default.
    pub mtu: Option<u32>,
    /// Network namespace of the other end.
    pub namespace: BorrowedFd<'a>,
}

/// Adds a veth pair in one message: both ends are down; the peer gets its name, MAC address and namespace.
pub fn add_veth(batch: &mut Batch, veth: &Veth<'_>) {
    batch.message(RTM_NEWLINK, CREATE | EXCL, &link_header(0, 0, 0), |m| {
        m.text(IFLA_IFNAME, veth.host);
        m.number(IFLA_MASTER, veth.bridge);
        if let Some(mtu) = veth.mtu {
            m.number(IFLA_MTU, mtu);
        }
        m.nest(IFLA_LINKINFO, |m| {
            m.text(IFLA_INFO_KIND, "veth");
            m.nest(IFLA_INFO_DATA, |m| {
                m.nest_with_header(VETH_INFO_PEER, &link_header(0, 0, 0), |m| {
                    m.text(IFLA_IFNAME, veth.peer);
                    m.bytes(IFLA_ADDRESS, &veth.mac);
                    if let Some(mtu) = veth.mtu {
                        m.number(IFLA_MTU, mtu);
                    }
                    // A descriptor is never negative.
                    m.number(IFLA_NET_NS_FD, veth.namespace.as_raw_fd().cast_unsigned());
                });
            });
        });
    });
}

/// Enables hairpin mode: frames may leave through the port they came from, so a pod can reach its own host port.
pub fn set_hairpin(batch: &mut Batch, port: &str) {
    batch.message(RTM_NEWLINK, 0, &link_header(0, 0, 0), |m| {
        m.text(IFLA_IFNAME, port);
        m.nest(IFLA_LINKINFO, |m| {
            m.text(IFLA_INFO_SLAVE_KIND, "bridge");
            m.nest(IFLA_INFO_SLAVE_DATA, |m| m.byte(IFLA_BRPORT_MODE, 1));
        });
    });
}

/// Disables the generation of link-local addresses. A link without IPv6 addresses sends no router solicitations and no
/// multicast group reports, each of which every port of the bridge would receive. Must be sent before the link goes up.
pub fn disable_ipv6_address_generation(batch: &mut Batch, name: &str) {
    const AF_INET6: u16 = 10;
    const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
    const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
    batch.message(RTM_NEWLINK, 0, &link_header(0, 0, 0), |m| {
        m.text(IFLA_IFNAME, name);
        m.nest(IFLA_AF_SPEC, |m| m.nest(AF_INET6, |m| m.byte(IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE)));
    });
}

/// Sets a link up.
pub fn set_up(batch: &mut Batch, name: &str) {
    batch.message(RTM_NEWLINK, 0, &link_header(0, IFF_UP, IFF_UP), |m| m.text(IFLA_IFNAME, name));
}

/// Deletes a link.
pub fn delete(batch: &mut Batch, name: &str) {
    batch.message(RTM_DELLINK, 0, &link_header(0, 0, 0), |m| m.text(IFLA_IFNAME, name));
}

/// Deletes links as a group: each deletion waits 16 to 29 ms for RCU grace periods, and a group waits only once.
pub fn delete_many(batch: &mut Batch, names: &[String]) {
    for name in names {
        batch.message(RTM_NEWLINK, 0, &link_header(0, 0, 0), |m| {
            m.text(IFLA_IFNAME, name);
            m.number(IFLA_GROUP, LEAVING);
        });
    }
    batch.message(RTM_DELLINK, 0, &link_header(0, 0, 0), |m| m.number(IFLA_GROUP, LEAVING));
}
