//! Routes and rules of policy routing.

use std::net::IpAddr;

use crate::{
    address::family,
    netlink::{Batch, CREATE, EXCL, REPLACE, Refusal, Socket, attributes},
    query::retry_interrupted,
    subnet::{Subnet, from_octets, octets},
};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
/// A gateway of another family than the destination: a `u16` of its family, and its address.
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;

/// The main table.
pub const TABLE_MAIN: u32 = 254;
/// The table of the node's own addresses.
pub const TABLE_LOCAL: u32 = 255;
/// Scope of routes through a gateway.
pub const SCOPE_UNIVERSE: u8 = 0;
/// Scope of routes to destinations on the link.
pub const SCOPE_LINK: u8 = 253;
/// Scope of routes to addresses of the node.
pub const SCOPE_HOST: u8 = 254;
/// Scope that matches every route when one is deleted.
pub const SCOPE_NOWHERE: u8 = 255;
/// Protocol of routes that the kernel added with an address.
pub const PROTOCOL_KERNEL: u8 = 2;
/// Protocol of routes that programs added.
pub const PROTOCOL_BOOT: u8 = 3;
/// Protocol of routes of router advertisements.
pub const PROTOCOL_RA: u8 = 9;
/// Type of routes through a link.
const UNICAST: u8 = 1;
/// Type of routes whose packets are answered with "destination unreachable".
pub const UNREACHABLE: u8 = 7;
/// Flag of a route with a gateway that counts as on the link (`RTNH_F_ONLINK`).
const ON_LINK: u8 = 4;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub to: Subnet,
    /// Gateway; `None` if the destination is on the link. One of IPv6 may lead to destinations of IPv4 (Linux 5.2).
    pub gateway: Option<IpAddr>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Index of the link; zero if the kernel must find it.
    pub link: u32,
    /// Priority; routes with smaller numbers are preferred.
    pub priority: u32,
    /// Table.
    pub table: u32,
    /// Scope (`RT_SCOPE_*`).
    pub scope: u8,
    /// Origin (`RTPROT_*`).
    pub protocol: u8,
    /// Type (`RTN_*`), 1 for unicast, 7 for unreachable.
    pub kind: u8,
    /// Whether the gateway is on the link although no address of the link has it in its subnet.
    pub is_on_link: bool,
    /// Maximum transmission unit of the path; zero if it is that of the link.
    pub mtu: u32,
    /// Maximum segment size that is advertised for TCP; zero for the kernel's default.
    pub advertised_mss: u32,
}

/// How a route is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddRoute {
    /// The kernel refuses a route that exists (`EEXIST`).
    New,
    /// Next to others with the same destination; IPv6 makes them one route with several next hops.
    Append,
    /// Replaces a route with the same destination and priority.
    Replace,
}

impl Route {
    /// Describes a unicast route of the main table.
    pub fn new(to: Subnet, gateway: Option<IpAddr>, link: u32) -> Self {
        Self {
            to,
            gateway,
            source: None,
            link,
            priority: 0,
            table: TABLE_MAIN,
            scope: SCOPE_UNIVERSE,
            protocol: PROTOCOL_BOOT,
            kind: UNICAST,
            is_on_link: false,
            mtu: 0,
            advertised_mss: 0,
        }
    }

    /// Describes every route of the main table to a destination through a link, for [`Route::delete`].
    pub fn any(to: Subnet, link: u32) -> Self {
        Self { scope: SCOPE_NOWHERE, protocol: 0, kind: 0, ..Self::new(to, None, link) }
    }

    /// Appends the message that adds the route.
    pub fn add(&self, batch: &mut Batch, how: AddRoute) {
        let flags = match how {
            AddRoute::New => CREATE | EXCL,
            AddRoute::Append => CREATE,
            AddRoute::Replace => CREATE | REPLACE,
        };
        self.message(batch, RTM_NEWROUTE, flags);
    }

    /// Appends the message that deletes the route.
    pub fn delete(&self, batch: &mut Batch) {
        self.message(batch, RTM_DELROUTE, 0);
    }

    fn message(&self, batch: &mut Batch, kind: u16, flags: u16) {
        let mut header = [0; 12]; // struct rtmsg
        header[0] = family(self.to.address);
        header[1] = self.to.prefix;
        // A table beyond 255 is only in its attribute.
        header[4] = u8::try_from(self.table).unwrap_or(0);
        header[5..8].copy_from_slice(&[self.protocol, self.scope, self.kind]);
        header[8] = if self.is_on_link { ON_LINK } else { 0 };
        batch.message(kind, flags, &header, |m| {
            if self.to.prefix > 0 {
                m.bytes(RTA_DST, &octets(self.to.network()));
            }
            match self.gateway {
                Some(gateway) if gateway.is_ipv4() == self.to.address.is_ipv4() => {
                    m.bytes(RTA_GATEWAY, &octets(gateway));
                }
                Some(gateway) => {
                    let mut via = u16::from(family(gateway)).to_ne_bytes().to_vec();
                    via.extend(octets(gateway));
                    m.bytes(RTA_VIA, &via);
                }
                None => {}
            }
            if let Some(source) = self.source {
                m.bytes(RTA_PREFSRC, &octets(source));
            }
            if self.table > 255 {
                m.number(RTA_TABLE, self.table);
            }
            for (kind, number) in [(RTA_OIF, self.link), (RTA_PRIORITY, self.priority)] {
                if number != 0 {
                    m.number(kind, number);
                }
            }
            if self.mtu != 0 || self.advertised_mss != 0 {
                m.nest(RTA_METRICS, |m| {
                    for (kind, number) in [(RTAX_MTU, self.mtu), (RTAX_ADVMSS, self.advertised_mss)] {
                        if number != 0 {
                            m.number(kind, number);
                        }
                    }
                });
            }
        });
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let any: IpAddr = if *body.first()? == 2 { [0; 4].into() } else { [0; 16].into() };
        let mut route = Self::new(Subnet { address: any, prefix: *body.get(1)? }, None, 0);
        route.table = u32::from(*body.get(4)?);
        [route.protocol, route.scope, route.kind] = body.get(5..8)?.try_into().ok()?;
        route.is_on_link = *body.get(8)? & ON_LINK != 0;
        let number = |value: &[u8]| value.try_into().map(u32::from_ne_bytes).ok();
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                RTA_DST => route.to.address = from_octets(value)?,
                RTA_GATEWAY => route.gateway = from_octets(value),
                RTA_VIA => route.gateway = from_octets(value.get(2..)?),
                RTA_PREFSRC => route.source = from_octets(value),
                RTA_OIF => route.link = number(value)?,
                RTA_PRIORITY => route.priority = number(value)?,
                RTA_TABLE => route.table = number(value)?,
                RTA_METRICS => {
                    for (metric, value) in attributes(value) {
                        match metric {
                            RTAX_MTU => route.mtu = number(value)?,
                            RTAX_ADVMSS => route.advertised_mss = number(value)?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(route)
    }
}

/// Returns the route that a packet takes to an address, and the table it is in. With `arrived`, the source and the index of
/// the link at which the packet arrived: the decision for a packet that is forwarded.
///
/// # Errors
/// `ENETUNREACH` without a route, `EHOSTUNREACH` for a route that is unreachable, `EACCES` for one that is prohibited.
pub fn route_to(
    socket: &mut Socket,
    destination: IpAddr,
    arrived: Option<(IpAddr, u32)>,
) -> Result<Option<Route>, Refusal> {
    const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
    const RTA_SRC: u16 = 2;
    const RTA_IIF: u16 = 3;
    let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let mut header = [0; 12];
    header[0] = family(destination);
    header[1] = bits(destination);
    header[2] = arrived.map_or(0, |(source, _)| bits(source));
    header[8..12].copy_from_slice(&RTM_F_LOOKUP_TABLE.to_ne_bytes());
    let mut batch = Batch::new();
    batch.message(RTM_GETROUTE, 0, &header, |m| {
        m.bytes(RTA_DST, &octets(destination));
        if let Some((source, link)) = arrived {
            m.bytes(RTA_SRC, &octets(source));
            m.number(RTA_IIF, link);
        }
    });
    let mut found = None;
    socket.query(batch, |_, body| found = Route::parse(body))?;
    Ok(found)
}

/// Returns all routes of both families and all tables, without clones of the cache.
pub fn routes(socket: &mut Socket) -> Result<Vec<Route>, Refusal> {
    const RTM_F_CLONED: u32 = 0x200;
    retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(RTM_GETROUTE, 0, &[0; 12], |_| {});
        let mut routes = Vec::new();
        socket.dump(batch, |_, body| {
            let flags = body.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
            if flags & RTM_F_CLONED == 0 {
                routes.extend(Route::parse(body));
            }
        })?;
        Ok(routes)
    })
}

/// Returns the index of the link that packets to an address leave through.
pub fn link_to(socket: &mut Socket, address: IpAddr) -> Result<Option<u32>, Refusal> {
    let route = route_to(socket, address, None)?;
    Ok(route.map(|route| route.link).filter(|link| *link != 0))
}

/// A rule that selects a table by the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Source addresses; `None` for every source.
    pub from: Option<Subnet>,
    /// Table.
    pub table: u32,
    /// Priority; zero if the kernel chooses one.
    pub priority: u32,
}

const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;

impl Rule {
    /// Appends the message that adds the rule.
    pub fn add(&self, batch: &mut Batch) {
        self.message(batch, RTM_NEWRULE, CREATE | EXCL);
    }

    /// Appends the message that deletes the rule.
    pub fn delete(&self, batch: &mut Batch) {
        self.message(batch, RTM_DELRULE, 0);
    }

    fn message(&self, batch: &mut Batch, kind: u16, flags: u16) {
        const FR_ACT_TO_TBL: u8 = 1;
        let mut header = [0; 12]; // struct fib_rule_hdr
        header[0] = self.from.map_or(2, |from| family(from.address));
        header[2] = self.from.map_or(0, |from| from.prefix);
        header[4] = u8::try_from(self.table).unwrap_or(0);
        header[7] = FR_ACT_TO_TBL;
        batch.message(kind, flags, &header, |m| {
            if let Some(from) = self.from.filter(|from| from.prefix > 0) {
                m.bytes(FRA_SRC, &octets(from.address));
            }
            if self.table > 255 {
                m.number(FRA_TABLE, self.table);
            }
            if self.priority != 0 {
                m.number(FRA_PRIORITY, self.priority);
            }
        });
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let mut rule = Self { from: None, table: u32::from(*body.get(4)?), priority: 0 };
        let prefix = *body.get(2)?;
        let number = |value: &[u8]| value.try_into().map(u32::from_ne_bytes).ok();
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                FRA_SRC => rule.from = from_octets(value).map(|address| Subnet { address, prefix }),
                FRA_PRIORITY => rule.priority = number(value)?,
                FRA_TABLE => rule.table = number(value)?,
                _ => {}
            }
        }
        Some(rule)
    }
}

/// Returns the rules of both families.
pub fn rules(socket: &mut Socket) -> Result<Vec<Rule>, Refusal> {
    let mut rules = Vec::new();
    for family in [2, 10] {
        rules.extend(retry_interrupted(|| {
            let mut header = [0; 12];
            header[0] = family;
            let mut batch = Batch::new();
            batch.message(RTM_GETRULE, 0, &header, |_| {});
            let mut found = Vec::new();
            socket.dump(batch, |_, body| found.extend(Rule::parse(body)))?;
            Ok(found)
        })?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;

    #[test]
    fn gateways_of_both_families_are_parsed_as_they_were_sent() {
        let parse = |address: &str| address.parse::<IpAddr>().expect("an address");
        for (to, prefix, gateway) in [
            ("0.0.0.0", 0, Some("169.254.1.1")),
            ("10.0.0.0", 8, Some("fe80::1")),
            ("fd00::", 8, Some("fe80::1")),
            ("10.0.0.0", 8, None),
        ] {
            let route = Route::new(Subnet { address: parse(to), prefix }, gateway.map(parse), 7);
            let mut batch = Batch::new();
            route.add(&mut batch, AddRoute::New);
            let (_, body) = messages(&batch.buffer).next().expect("a message");
            assert_eq!(Route::parse(body), Some(route));
        }
    }
}
