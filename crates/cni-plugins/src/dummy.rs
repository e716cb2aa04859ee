//! `dummy`: an interface that drops what is sent through it.

use rtnl::{Kind, NewLink, netlink::Batch};

use crate::{Error, PluginResult, Request, address_management, check, link, pod, pod::Setup};

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    must_have_addresses(request)?;
    address_management::around(request, |managed| {
        let mut result = managed.unwrap_or_default();
        for ip in &mut result.ips {
            ip.interface = Some(0);
        }
        let (name, setup) = (request.interface.clone(), Setup::of(&result, 0));
        let created = pod::visit(request.namespace()?, move |socket| {
            let mut batch = Batch::new();
            NewLink::new(&name, Kind::Dummy).add(&mut batch);
            socket.request(batch).map_err(|e| Error::of_module("create dummy interface", &name, "dummy", e))?;
            Ok(setup.apply_here(socket, &name))
        })?;
        let link = created.inspect_err(|_| link::undo(request))?;
        result.interfaces = vec![link::pod_interface(request, &link)];
        Ok(result)
    })
}

fn must_have_addresses(request: &Request) -> Result<(), Error> {
    if address_management::is_configured(request) { Ok(()) } else { Err(Error::config("ipam", "missing")) }
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    must_have_addresses(request)?;
    address_management::check(request)?;
    let link = check::attachment(request, "dummy")?;
    match link.flags & rtnl::flags::UP {
        0 => Err(Error::differs(&request.interface, "is down")),
        _ => Ok(()),
    }
}
