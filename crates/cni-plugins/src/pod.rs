//! Work in the pod's network namespace, in one visit: sysctls, addresses, state, routes.

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use netns::Namespace;
use rtnl::{
    AddRoute, Change, Link,
    flags::UP,
    netlink::{Batch, Socket},
    subnet::Subnet,
};

use crate::{Error, PluginResult, Request, Route, sysctl};

/// Longest time that duplicate address detection may take.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(10);
const DETECTION_PAUSE: Duration = Duration::from_millis(20);

/// Runs work in the pod's namespace with a rtnetlink socket of it.
pub(crate) fn visit<T: Send + 'static>(
    namespace: &Namespace,
    work: impl FnOnce(&mut Socket) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    namespace.enter(move || work(&mut socket()?))?
}

pub(crate) fn socket() -> Result<Socket, Error> {
    Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))
}

/// Returns the pod's link of a name.
pub(crate) fn link(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    let found = rtnl::link_by_name(socket, name).map_err(|e| Error::kernel("find", format!("{name} in the pod"), e))?;
    found.ok_or_else(|| Error::kernel("find", format!("{name} in the pod"), rustix::io::Errno::NODEV))
}

/// What the pod's link gets.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// Sysctls to write before the link has addresses, which a kernel may lack.
    pub(crate) sysctls: Vec<(String, &'static str)>,
    /// Sysctls to write after the link was set up, which a kernel may lack.
    pub(crate) late_sysctls: Vec<(String, &'static str)>,
    /// Addresses and their gateways.
    pub(crate) addresses: Vec<(Subnet, Option<IpAddr>)>,
    pub(crate) routes: Vec<Route>,
    /// Whether the link stays down.
    pub(crate) is_down: bool,
}

impl Setup {
    /// Returns the setup for a result: its addresses of the interface with an index, and all routes.
    pub(crate) fn of(result: &PluginResult, interface: usize) -> Self {
        let here = result.ips.iter().filter(|ip| ip.interface == Some(interface));
        Self {
            addresses: here.map(|ip| (ip.address, ip.gateway)).collect(),
            routes: result.routes.clone(),
            ..Self::default()
        }
    }

    /// Adds the sysctl with which the kernel announces IPv4 addresses to neighbours when the link is set up, unless the
    /// announcer does.
    pub(crate) fn announce_ipv4(&mut self, request: &Request) {
        let sysctls = if request.announcer.is_started() { &mut self.late_sysctls } else { &mut self.sysctls };
        sysctls.push((format!("ipv4/conf/{}/arp_notify", request.interface), "1"));
    }

    /// Adds the sysctl with which the kernel announces IPv6 addresses to neighbours.
    pub(crate) fn announce_ipv6(&mut self, request: &Request) {
        self.sysctls.push((format!("ipv6/conf/{}/ndisc_notify", request.interface), "1"));
    }

    /// Applies the setup to the pod's link, which exists; returns the link as it was found.
    pub(crate) fn apply(self, request: &Request) -> Result<Link, Error> {
        let name = request.interface.clone();
        visit(request.namespace()?, move |socket| self.apply_here(socket, &name))
    }

    /// Like [`Setup::apply`], in the namespace of the calling thread.
    pub(crate) fn apply_here(self, socket: &mut Socket, name: &str) -> Result<Link, Error> {
        let link = link(socket, name)?;
        for (key, value) in &self.sysctls {
            sysctl::write_if_present(key, value)?;
        }
        let ipv6: Vec<Subnet> = self.addresses.iter().map(|(a, _)| *a).filter(|a| a.address.is_ipv6()).collect();
        if !ipv6.is_empty() {
            for interface in ["lo", name] {
                sysctl::ensure(&format!("ipv6/conf/{interface}/disable_ipv6"), "0")?;
            }
            sysctl::write(&format!("ipv6/conf/{name}/keep_addr_on_down"), "1")?;
        }
        let mut batch = Batch::new();
        for (address, _) in &self.addresses {
            rtnl::add_tentative_address(&mut batch, link.index, *address);
        }
        if !self.is_down {
            Change::flag(UP, true).of(&mut batch, link.index);
        }
        let fail = |refusal| Error::kernel("set up", format!("{name} in the pod"), refusal);
        let has_ipv6_gateway = self.addresses.iter().any(|(_, gateway)| gateway.is_some_and(|g| g.is_ipv6()));
        if has_ipv6_gateway && !ipv6.is_empty() {
            // The kernel refuses routes with a source address whose duplicate detection is in progress.
            socket.request(std::mem::take(&mut batch)).map_err(fail)?;
            wait_for_detection(socket, &link, &ipv6)?;
        }
        for route in &self.routes {
            self.kernel_route(route, link.index).add(&mut batch, AddRoute::Append);
        }
        if !batch.is_empty() {
            socket.request(batch).map_err(fail)?;
        }
        for (key, value) in &self.late_sysctls {
            sysctl::write_if_present(key, value)?;
        }
        Ok(link)
    }

    /// Returns a route with the gateway of the first address of its family unless it has its own.
    fn kernel_route(&self, route: &Route, link: u32) -> rtnl::Route {
        let same_family = |gateway: &IpAddr| gateway.is_ipv4() == route.dst.address.is_ipv4();
        let gateway = route.gw.or_else(|| self.addresses.iter().filter_map(|(_, g)| *g).find(same_family));
        rtnl::Route {
            priority: route.priority,
            table: route.table.unwrap_or(rtnl::TABLE_MAIN),
            scope: route.scope.unwrap_or(rtnl::SCOPE_UNIVERSE),
            mtu: route.mtu,
            advertised_mss: route.advmss,
            ..rtnl::Route::new(route.dst, gateway, link)
        }
    }
}

/// Waits until duplicate address detection of the addresses has ended, which takes one to two seconds unless it is off.
fn wait_for_detection(socket: &mut Socket, link: &Link, addresses: &[Subnet]) -> Result<(), Error> {
    let deadline = Instant::now() + DETECTION_TIMEOUT;
    loop {
        let all = rtnl::addresses(socket).map_err(|e| Error::kernel("list addresses of", &link.name, e))?;
        let mut of_link = all.iter().filter(|a| a.link == link.index && addresses.contains(&a.address));
        if let Some(duplicate) = of_link.clone().find(|a| a.is_duplicate()) {
            let cause = std::io::Error::other("another machine has the address");
            return Err(Error::kernel("add address", duplicate.address.to_string(), cause));
        }
        if !of_link.any(rtnl::Address::is_tentative) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let cause = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(Error::kernel("detect duplicate addresses on", &link.name, cause));
        }
        thread::sleep(DETECTION_PAUSE);
    }
}

/// Deletes the pod's link; succeeds if the link or the namespace is gone. Returns the link's addresses.
pub(crate) fn delete_link(request: &Request) -> Result<Vec<Subnet>, Error> {
    let Some(namespace) = &request.namespace else { return Ok(Vec::new()) };
    let name = request.interface.clone();
    visit(namespace, move |socket| {
        let fail = |refusal| Error::kernel("delete", format!("{name} in the pod"), refusal);
        let Some(link) = rtnl::link_by_name(socket, &name).map_err(fail)? else { return Ok(Vec::new()) };
        let addresses = rtnl::addresses(socket).map_err(fail)?;
        let mut batch = Batch::new();
        rtnl::delete_by_index(&mut batch, link.index);
        match socket.request(batch) {
            Err(refusal) if refusal.errno != rustix::io::Errno::NODEV => return Err(fail(refusal)),
            _ => {}
        }
        Ok(addresses.into_iter().filter(|a| a.link == link.index).map(|a| a.address).collect())
    })
}
