//! Changes attributes of a link.

use rustix::fd::{AsRawFd, BorrowedFd};

use crate::{link_header, netlink::Batch};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;

/// Flags of a link (`IFF_*`).
pub mod flags {
    /// The link is up.
    pub const UP: u32 = 0x1;
    /// The link is a loopback interface.
    pub const LOOPBACK: u32 = 0x8;
    /// The link has no ARP.
    pub const NO_ARP: u32 = 0x80;
    /// The link receives all frames.
    pub const PROMISCUOUS: u32 = 0x100;
    /// The link receives all multicast frames.
    pub const ALL_MULTICAST: u32 = 0x200;
}

/// Changes of one link; `None` leaves an attribute as it is. The kernel applies them in an order of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change<'a> {
    /// New name. The link must be down before Linux 6.0.
    pub name: Option<&'a str>,
    /// Alternative name for people; empty to remove it.
    pub alias: Option<&'a str>,
    /// MAC address.
    pub mac: Option<&'a [u8]>,
    /// Maximum transmission unit.
    pub mtu: Option<u32>,
    /// Length of the transmit queue.
    pub transmit_queue: Option<u32>,
    /// Index of the bridge or VRF that the link becomes a port of; zero to remove it from one.
    pub master: Option<u32>,
    /// Network namespace that the link moves to, which sets it down.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Flags to set, of those in `mask`.
    pub flags: u32,
    /// Flags to change.
    pub mask: u32,
}

impl Change<'_> {
    /// Returns the change that sets flags or clears them.
    #[must_use]
    pub fn flag(flag: u32, is_set: bool) -> Self {
        Self { flags: if is_set { flag } else { 0 }, mask: flag, ..Self::default() }
    }

    /// Appends the message.
    pub fn of(&self, batch: &mut Batch, index: u32) {
        const IFLA_ADDRESS: u16 = 1;
        const IFLA_IFNAME: u16 = 3;
        const IFLA_MTU: u16 = 4;
        const IFLA_MASTER: u16 = 10;
        const IFLA_TXQLEN: u16 = 13;
        const IFLA_IFALIAS: u16 = 20;
        const IFLA_NET_NS_FD: u16 = 28;
        batch.message(RTM_NEWLINK, 0, &link_header(index, self.flags, self.mask), |m| {
            if let Some(name) = self.name {
                m.text(IFLA_IFNAME, name);
            }
            if let Some(alias) = self.alias {
                m.bytes(IFLA_IFALIAS, alias.as_bytes());
            }
            if let Some(mac) = self.mac {
                m.bytes(IFLA_ADDRESS, mac);
            }
            let numbers = [(IFLA_MTU, self.mtu), (IFLA_MASTER, self.master), (IFLA_TXQLEN, self.transmit_queue)];
            for (kind, number) in numbers {
                if let Some(number) = number {
                    m.number(kind, number);
                }
            }
            if let Some(namespace) = self.namespace {
                // A descriptor is never negative.
                m.number(IFLA_NET_NS_FD, namespace.as_raw_fd().cast_unsigned());
            }
        });
    }
}

/// Deletes a link by its index.
pub fn delete_by_index(batch: &mut Batch, index: u32) {
    batch.message(RTM_DELLINK, 0, &link_header(index, 0, 0), |_| {});
}

/// Options of a link as a port of a bridge.
#[derive(Clone, Copy, Debug)]
pub struct BridgePort {
    /// Whether frames may leave through the port they came from.
    pub hairpin: bool,
    /// Whether the port exchanges no frames with other isolated ports (Linux 4.18).
    pub isolated: bool,
}

impl BridgePort {
    /// Appends the message.
    pub fn set(self, batch: &mut Batch, index: u32) {
        const IFLA_LINKINFO: u16 = 18;
        const IFLA_INFO_SLAVE_KIND: u16 = 4;
        const IFLA_INFO_SLAVE_DATA: u16 = 5;
        const IFLA_BRPORT_MODE: u16 = 4;
        const IFLA_BRPORT_ISOLATED: u16 = 33;
        batch.message(RTM_NEWLINK, 0, &link_header(index, 0, 0), |m| {
            m.nest(IFLA_LINKINFO, |m| {
                m.text(IFLA_INFO_SLAVE_KIND, "bridge");
                m.nest(IFLA_INFO_SLAVE_DATA, |m| {
                    m.byte(IFLA_BRPORT_MODE, u8::from(self.hairpin));
                    m.byte(IFLA_BRPORT_ISOLATED, u8::from(self.isolated));
                });
            });
        });
    }
}

/// Adds a VLAN to a port of a bridge that filters by VLAN, or removes it.
#[derive(Clone, Copy, Debug)]
pub struct PortVlan {
    /// VLAN number.
    pub id: u16,
    /// Whether frames without a tag belong to this VLAN, and leave the port without a tag.
    pub native: bool,
}

impl PortVlan {
    /// Appends the message that adds the VLAN.
    pub fn add(self, batch: &mut Batch, index: u32) {
        const RTM_SETLINK: u16 = 19;
        self.message(batch, index, RTM_SETLINK);
    }

    /// Appends the message that removes the VLAN.
    pub fn delete(self, batch: &mut Batch, index: u32) {
        self.message(batch, index, RTM_DELLINK);
    }

    fn message(self, batch: &mut Batch, index: u32, kind: u16) {
        const AF_BRIDGE: u8 = 7;
        const IFLA_AF_SPEC: u16 = 26;
        const IFLA_BRIDGE_FLAGS: u16 = 0;
        const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
        const BRIDGE_FLAGS_MASTER: u16 = 1;
        const BRIDGE_VLAN_INFO_PVID_UNTAGGED: u16 = 2 | 4;
        let mut header = link_header(index, 0, 0);
        header[0] = AF_BRIDGE;
        batch.message(kind, 0, &header, |m| {
            m.nest(IFLA_AF_SPEC, |m| {
                m.bytes(IFLA_BRIDGE_FLAGS, &BRIDGE_FLAGS_MASTER.to_ne_bytes());
                let [a, b] = (if self.native { BRIDGE_VLAN_INFO_PVID_UNTAGGED } else { 0 }).to_ne_bytes();
                let [c, d] = self.id.to_ne_bytes();
                m.bytes(IFLA_BRIDGE_VLAN_INFO, &[a, b, c, d]);
            });
        });
    }
}
