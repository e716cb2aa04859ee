//! Addresses and routes.

use std::net::IpAddr;

use crate::{
    netlink::{Batch, CREATE, EXCL},
    subnet::{Subnet, octets},
};

const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

/// Adds an address with its prefix length. Duplicate address detection is off for IPv6, because leases are unique.
pub fn add_address(batch: &mut Batch, link: u32, address: Subnet) {
    const IFA_F_NODAD: u8 = 2;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_BROADCAST: u16 = 4;
    let flags = if address.address.is_ipv6() { IFA_F_NODAD } else { 0 };
    let mut header = [0; 8]; // struct ifaddrmsg
    header[0..3].copy_from_slice(&[family(address.address), address.prefix, flags]);
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    batch.message(RTM_NEWADDR, CREATE | EXCL, &header, |m| {
        let bytes = octets(address.address);
        m.bytes(IFA_LOCAL, &bytes);
        m.bytes(IFA_ADDRESS, &bytes);
        if address.address.is_ipv4() && address.prefix < 31 {
            m.bytes(IFA_BROADCAST, &octets(address.last()));
        }
    });
}

/// Adds a route through a gateway, or a link-scope route.
pub fn add_route(batch: &mut Batch, link: u32, to: Subnet, gateway: Option<IpAddr>) {
    const RT_TABLE_MAIN: u8 = 254;
    const RTPROT_BOOT: u8 = 3;
    const RT_SCOPE_LINK: u8 = 253;
    const RTN_UNICAST: u8 = 1;
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    let scope = if gateway.is_some() { 0 } else { RT_SCOPE_LINK };
    let mut header = [0; 12]; // struct rtmsg
    header[0] = family(to.address);
    header[1] = to.prefix;
    header[4..8].copy_from_slice(&[RT_TABLE_MAIN, RTPROT_BOOT, scope, RTN_UNICAST]);
    batch.message(RTM_NEWROUTE, CREATE | EXCL, &header, |m| {
        if to.prefix > 0 {
            m.bytes(RTA_DST, &octets(to.network()));
        }
        if let Some(gateway) = gateway {
            m.bytes(RTA_GATEWAY, &octets(gateway));
        }
        m.number(RTA_OIF, link);
    });
}
