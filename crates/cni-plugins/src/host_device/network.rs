//! Addresses, routes and rules that a link has on the node, which it keeps in the pod (`useInterfaceNetwork`).

use rtnl::{
    AddRoute, Address, Link, Route, Rule,
    netlink::{Batch, Socket},
};
use rustix::io::Errno;

use crate::{Error, Ip, PluginResult};

/// What a link has on the node.
#[derive(Clone, Debug)]
pub(super) struct NodeNetwork {
    addresses: Vec<Address>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
}

impl NodeNetwork {
    /// Reads it, without what the kernel adds by itself.
    pub(super) fn of(socket: &mut Socket, link: &Link) -> Result<Self, Error> {
        let fail = |refusal| Error::kernel("read network of", &link.name, refusal);
        let is_kept = |address: &Address| {
            let is_universal = address.scope == rtnl::SCOPE_UNIVERSE && address.link == link.index;
            // Nothing renews what router advertisements assigned, except in the pod.
            is_universal && (address.address.address.is_ipv4() || address.is_permanent())
        };
        let all = rtnl::addresses(socket).map_err(fail)?;
        let addresses: Vec<Address> = all.into_iter().filter(is_kept).collect();
        let is_link_local = |route: &Route| match route.to.address {
            std::net::IpAddr::V6(v6) => v6.is_unicast_link_local() && route.to.prefix > 0,
            std::net::IpAddr::V4(_) => false,
        };
        let mut routes = rtnl::routes(socket).map_err(fail)?;
        routes.retain(|route| {
            route.link == link.index
                && route.table != rtnl::TABLE_LOCAL
                && !matches!(route.protocol, rtnl::PROTOCOL_KERNEL | rtnl::PROTOCOL_RA)
                && !is_link_local(route)
        });
        let mut rules = rtnl::rules(socket).map_err(fail)?;
        rules.retain(|rule| {
            let covers = rule.from.is_some_and(|from| addresses.iter().any(|a| from.contains(a.address.address)));
            covers && rule.table != rtnl::TABLE_LOCAL && routes.iter().any(|route| route.table == rule.table)
        });
        Ok(Self { addresses, routes, rules })
    }

    /// Gives it to the pod's link, which is up.
    pub(super) fn apply(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        let mut batch = Batch::new();
        for address in &self.addresses {
            rtnl::add_tentative_address(&mut batch, link.index, address.address);
        }
        let mut routes = self.routes.clone();
        // Routes through a gateway need those to the gateway.
        routes.sort_by_key(|route| std::cmp::Reverse(route.scope));
        for route in routes {
            Route { link: link.index, ..route }.add(&mut batch, AddRoute::New);
        }
        for rule in &self.rules {
            rule.add(&mut batch);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let fail = |refusal| Error::kernel("copy network to", format!("{} in the pod", link.name), refusal);
        let refusals = socket.request_each(batch).map_err(fail)?;
        let refusal = refusals.into_iter().find(|refusal| refusal.errno != Errno::EXIST);
        refusal.map_or(Ok(()), |refusal| Err(fail(refusal)))
    }

    /// Adds it to the result.
    pub(super) fn add_to(&self, result: &mut PluginResult) {
        result.ips.extend(self.addresses.iter().map(|a| Ip { interface: Some(0), address: a.address, gateway: None }));
        result.routes.extend(self.routes.iter().map(|route| crate::Route {
            priority: route.priority,
            table: (route.table != 0).then_some(route.table),
            scope: (route.scope != 0).then_some(route.scope),
            ..crate::Route::new(route.to, route.gateway)
        }));
    }
}
