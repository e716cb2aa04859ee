//! Links that are made on a lower link of the node, or of the pod: macvlan, ipvlan and vlan have this in common.

use rtnl::{
    Kind, Link, NewLink,
    netlink::{Batch, Socket},
};
use rustix::{fd::AsFd, io::Errno};

use crate::{Error, Interface, PluginResult, Request, address_management, announcer, check, pod, pod::Setup};

/// A link on top of another one.
#[derive(Debug)]
pub(crate) struct UpperLink {
    pub(crate) master: String,
    pub(crate) kind: Kind<'static>,
    /// Name of the kernel module.
    pub(crate) module: &'static str,
    pub(crate) mac: Option<[u8; 6]>,
    /// Zero for that of the lower link.
    pub(crate) mtu: u32,
    /// Whether the lower link is in the pod's namespace.
    pub(crate) is_in_pod: bool,
    /// Whether new addresses are announced to neighbours.
    pub(crate) announces: bool,
}

impl UpperLink {
    /// Creates the link and configures it; returns its interface and what address management returned. `addresses` are
    /// used if the plugin has no address management.
    pub(crate) fn add(self, request: &Request, addresses: Option<PluginResult>) -> Result<PluginResult, Error> {
        address_management::around(request, |managed| {
            let mut result = managed.or(addresses).unwrap_or_default();
            self.create(request)?;
            for ip in &mut result.ips {
                ip.interface = Some(0);
            }
            let mut setup = Setup::of(&result, 0);
            let announces = self.announces && !result.ips.is_empty();
            if announces {
                setup.announce_ipv4(request);
                setup.announce_ipv6(request);
            }
            let link = setup.apply(request).inspect_err(|_| undo(request))?;
            if announces {
                announcer::announce(request, &link, &result, 0);
            }
            result.interfaces = vec![pod_interface(request, &link)];
            result.dns = request.dns()?;
            Ok(result)
        })
    }

    fn create(&self, request: &Request) -> Result<(), Error> {
        let namespace = request.namespace()?;
        let mut socket = if self.is_in_pod { namespace.enter(pod::socket)?? } else { Request::node_socket()? };
        let lower = lower(&mut socket, &self.master)?;
        if self.mtu > lower.mtu {
            let reason = format!("{} is more than {} of {}", self.mtu, lower.mtu, self.master);
            return Err(Error::config("mtu", reason));
        }
        let new = NewLink {
            mac: self.mac,
            mtu: (self.mtu > 0).then_some(self.mtu),
            parent: Some(lower.index),
            namespace: Some(namespace.as_fd()),
            ..NewLink::new(&request.interface, self.kind.clone())
        };
        let mut batch = Batch::new();
        new.add(&mut batch);
        let object = format!("{} {} on {}", self.kind.name(), request.interface, self.master);
        socket.request(batch).map_err(|refusal| Error::of_module("create", object, self.module, refusal))
    }

    /// Compares the pod's link with the configuration and the previous result.
    pub(crate) fn check(&self, request: &Request, variant: rtnl::Variant) -> Result<(), Error> {
        address_management::check(request)?;
        let mut socket =
            if self.is_in_pod { request.namespace()?.enter(pod::socket)?? } else { Request::node_socket()? };
        lower(&mut socket, &self.master)?;
        let link = check::attachment(request, self.kind.name())?;
        if link.variant != variant {
            let reason = format!("is {:?}, configured is {variant:?}", link.variant);
            return Err(Error::differs(&request.interface, reason));
        }
        if self.mtu > 0 && link.mtu != self.mtu {
            return Err(Error::differs(&request.interface, format!("mtu is {}, configured is {}", link.mtu, self.mtu)));
        }
        Ok(())
    }
}

fn lower(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    let fail = |cause: std::io::Error| Error::kernel("find master", name, cause);
    let found = rtnl::link_by_name(socket, name).map_err(|refusal| fail(refusal.into()))?;
    found.ok_or_else(|| fail(Errno::NODEV.into()))
}

/// Deletes a link that could not be configured. The first error is the one to return.
pub(crate) fn undo(request: &Request) {
    let _ = pod::delete_link(request);
}

/// Describes the pod's interface.
pub(crate) fn pod_interface(request: &Request, link: &Link) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: link.mac_text(),
        sandbox: request.namespace_path.clone(),
        ..Interface::default()
    }
}

/// Deletes the pod's link, then releases its addresses: another pod may get them at once.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    pod::delete_link(request)?;
    address_management::delete(request)
}

/// Returns the name of the link that the first default route leaves through.
pub(crate) fn of_default_route(request: &Request, is_in_pod: bool) -> Result<String, Error> {
    let mut socket = if is_in_pod { request.namespace()?.enter(pod::socket)?? } else { Request::node_socket()? };
    let fail = |refusal| Error::kernel("list", "routes", refusal);
    let routes = rtnl::routes(&mut socket).map_err(fail)?;
    let is_default = |route: &&rtnl::Route| route.to.prefix == 0 && route.table == rtnl::TABLE_MAIN && route.link != 0;
    let missing = || Error::config("master", "missing, and there is no default route");
    let route = routes.iter().find(is_default).ok_or_else(missing)?;
    let link = rtnl::link_by_index(&mut socket, route.link).map_err(fail)?;
    link.map(|link| link.name).ok_or_else(missing)
}
