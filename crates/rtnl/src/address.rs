//! Addresses and routes.

use std::net::IpAddr;

use crate::{
    netlink::{Batch, CREATE, EXCL, Refusal, Socket, attributes},
    query::retry_interrupted,
    subnet::{Subnet, from_octets, octets},
};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Returns the number of the address family.
pub(crate) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the link.
    pub link: u32,
    /// Address with its prefix length.
    pub address: Subnet,
    /// Scope (`RT_SCOPE_*`), 0 for addresses that are valid everywhere.
    pub scope: u8,
    /// Flags (`IFA_F_*`).
    pub flags: u32,
}

impl Address {
    /// Reports whether duplicate address detection is in progress.
    pub fn is_tentative(&self) -> bool {
        const IFA_F_TENTATIVE: u32 = 0x40;
        self.flags & IFA_F_TENTATIVE != 0
    }

    /// Reports whether duplicate address detection found another owner.
    pub fn is_duplicate(&self) -> bool {
        const IFA_F_DADFAILED: u32 = 0x08;
        self.flags & IFA_F_DADFAILED != 0
    }

    /// Reports whether the address has no lifetime.
    pub fn is_permanent(&self) -> bool {
        const IFA_F_PERMANENT: u32 = 0x80;
        self.flags & IFA_F_PERMANENT != 0
    }

    fn parse(body: &[u8]) -> Option<Self> {
        const IFA_FLAGS: u16 = 8;
        let &[_, prefix, flags, scope] = body.first_chunk()?;
        let link = u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
        let (mut local, mut remote, mut flags) = (None, None, u32::from(flags));
        for (kind, value) in attributes(body.get(8..)?) {
            match kind {
                IFA_ADDRESS => remote = from_octets(value),
                IFA_LOCAL => local = from_octets(value),
                IFA_FLAGS => flags = u32::from_ne_bytes(value.try_into().ok()?),
                _ => {}
            }
        }
        Some(Self { link, address: Subnet { address: local.or(remote)?, prefix }, scope, flags })
    }
}

/// Returns the addresses of all links.
pub fn addresses(socket: &mut Socket) -> Result<Vec<Address>, Refusal> {
    retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(RTM_GETADDR, 0, &[0; 8], |_| {});
        let mut all = Vec::new();
        socket.dump(batch, |_, body| all.extend(Address::parse(body)))?;
        Ok(all)
    })
}

/// Adds an address with its prefix length. Duplicate address detection is off for IPv6, because leases are unique.
pub fn add_address(batch: &mut Batch, link: u32, address: Subnet) {
    const IFA_F_NODAD: u8 = 2;
    let flags = if address.address.is_ipv6() { IFA_F_NODAD } else { 0 };
    add(batch, link, address, flags);
}

/// Adds an address with its prefix length. IPv6 addresses are tentative until duplicate address detection has ended.
pub fn add_tentative_address(batch: &mut Batch, link: u32, address: Subnet) {
    add(batch, link, address, 0);
}

/// Deletes an address.
pub fn delete_address(batch: &mut Batch, link: u32, address: Subnet) {
    batch.message(RTM_DELADDR, 0, &header(link, address, 0), |m| m.bytes(IFA_LOCAL, &octets(address.address)));
}

/// Builds a `struct ifaddrmsg`.
fn header(link: u32, address: Subnet, flags: u8) -> [u8; 8] {
    let mut header = [0; 8];
    header[0..3].copy_from_slice(&[family(address.address), address.prefix, flags]);
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header
}

fn add(batch: &mut Batch, link: u32, address: Subnet, flags: u8) {
    const IFA_BROADCAST: u16 = 4;
    batch.message(RTM_NEWADDR, CREATE | EXCL, &header(link, address, flags), |m| {
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
