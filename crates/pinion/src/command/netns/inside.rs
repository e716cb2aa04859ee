use netns::Namespace;
use rtnl::{
    Address, Link, Route, TABLE_LOCAL, flags,
    netlink::{Refusal, Socket},
};
use serde_json::{Value, json};

use crate::Failure;

/// Addresses of this scope and above are valid on one link or in one host only.
const SCOPE_LINK: u8 = 253;

/// What is in a network namespace.
pub(super) struct Inside {
    pub(super) links: Vec<Link>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

impl Inside {
    /// Reads the links, addresses and routes of a namespace.
    pub(super) fn read(namespace: &Namespace) -> Result<Self, Failure> {
        let fail = |refusal: Refusal| Failure::new(format!("read links of a network namespace: {refusal}"));
        let socket = namespace.enter(Socket::route)?;
        let mut socket = socket.map_err(|e| Failure::new(format!("open an rtnetlink socket: {e}")))?;
        let links = rtnl::links(&mut socket).map_err(fail)?;
        let addresses = rtnl::addresses(&mut socket).map_err(fail)?;
        let routes = rtnl::routes(&mut socket).map_err(fail)?;
        Ok(Self { links, addresses, routes })
    }

    /// Returns the addresses that others can reach.
    pub(super) fn global_addresses(&self) -> Vec<String> {
        let global = self.addresses.iter().filter(|address| address.scope < SCOPE_LINK);
        global.map(|address| address.address.to_string()).collect()
    }

    fn name_of(&self, link: u32) -> &str {
        self.links.iter().find(|one| one.index == link).map_or("", |link| &link.name)
    }

    pub(super) fn json(&self) -> Value {
        // Routes to own addresses say nothing new.
        let routes = self.routes.iter().filter(|route| route.table != TABLE_LOCAL);
        json!({
            "links": self.links.iter().map(|link| self.link(link)).collect::<Vec<_>>(),
            "routes": routes.map(|route| json!({
                "to": route.to.to_string(),
                "gateway": route.gateway,
                "link": self.name_of(route.link),
                "table": route.table,
                "priority": route.priority,
            })).collect::<Vec<_>>(),
        })
    }

    fn link(&self, link: &Link) -> Value {
        let mac: Vec<String> = link.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let addresses = self.addresses.iter().filter(|address| address.link == link.index);
        json!({
            "name": link.name,
            "index": link.index,
            "kind": link.kind,
            "up": link.flags & flags::UP != 0,
            "mac": mac.join(":"),
            "mtu": link.mtu,
            "addresses": addresses.map(|address| address.address.to_string()).collect::<Vec<_>>(),
            "received": { "bytes": link.counters.rx_bytes, "packets": link.counters.rx_packets,
                "errors": link.counters.rx_errors, "dropped": link.counters.rx_dropped },
            "sent": { "bytes": link.counters.tx_bytes, "packets": link.counters.tx_packets,
                "errors": link.counters.tx_errors, "dropped": link.counters.tx_dropped },
        })
    }
}
