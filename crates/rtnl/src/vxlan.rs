//! Attributes of VXLAN tunnel endpoints.
//!
//! Source: `linux/if_link.h` (`IFLA_VXLAN_*`), RFC 7348.

use std::net::IpAddr;

use crate::{
    netlink::{Batch, attributes as parse},
    subnet::{from_octets, octets},
};

const ID: u16 = 1;
const LOCAL: u16 = 4;
const LEARNING: u16 = 7;
const PORT: u16 = 15;
const LOCAL6: u16 = 17;
const UDP_CHECKSUM: u16 = 18;
const UDP_ZERO_CHECKSUM6_SEND: u16 = 19;
const UDP_ZERO_CHECKSUM6_RECEIVE: u16 = 20;

/// What distinguishes a VXLAN tunnel endpoint from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Network identifier.
    pub id: u32,
    /// Address of the endpoint.
    pub local: Option<IpAddr>,
    /// UDP port.
    pub port: u16,
    /// Whether the endpoint learns where MAC addresses are from the frames that it receives.
    pub is_learning: bool,
}

impl Vxlan {
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let mut endpoint = Self { id: 0, local: None, port: 0, is_learning: false };
        for (kind, value) in parse(data) {
            match kind {
                ID => endpoint.id = u32::from_ne_bytes(value.try_into().ok()?),
                LOCAL | LOCAL6 => endpoint.local = from_octets(value),
                PORT => endpoint.port = u16::from_be_bytes(value.try_into().ok()?),
                LEARNING => endpoint.is_learning = value.first() == Some(&1),
                _ => {}
            }
        }
        Some(endpoint)
    }
}

/// Appends the attributes of a new endpoint.
pub(crate) fn attributes(m: &mut Batch, id: u32, local: IpAddr, port: u16) {
    m.number(ID, id);
    m.bytes(if local.is_ipv4() { LOCAL } else { LOCAL6 }, &octets(local));
    m.byte(LEARNING, 0);
    m.bytes(PORT, &port.to_be_bytes());
    // The inner packet has a checksum, so that of the outer one should be zero (RFC 7348 section 5; RFC 6935 for IPv6). The
    // kernel's default is to compute it.
    if local.is_ipv4() {
        m.byte(UDP_CHECKSUM, 0);
    } else {
        m.byte(UDP_ZERO_CHECKSUM6_SEND, 1);
        m.byte(UDP_ZERO_CHECKSUM6_RECEIVE, 1);
    }
}
