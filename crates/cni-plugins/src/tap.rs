//! `tap`: a tap device in the pod, for a virtual machine.

use rtnl::{Change, flags::UP, netlink::Batch};
use rustix::io::Errno;
use serde::Deserialize;
use syscall::tap::TapOptions;

use crate::{Error, PluginResult, Request, address_management, arguments, check, link, pod, pod::Setup};

#[derive(Deserialize)]
struct Options {
    #[serde(default, rename = "multiQueue")]
    has_queues: bool,
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    mac: String,
    owner: Option<u32>,
    group: Option<u32>,
    #[serde(default, rename = "selinuxContext")]
    selinux_context: String,
    #[serde(default)]
    bridge: String,
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options: Options = request.options()?;
    let mac = request.mac_of_engine().unwrap_or_else(|| options.mac.clone());
    let mac = (!mac.is_empty()).then(|| arguments::mac(&mac)).transpose()?;
    address_management::around(request, |managed| {
        let mut result = managed.unwrap_or_default();
        for ip in &mut result.ips {
            ip.interface = Some(0);
        }
        let mut setup = Setup::of(&result, 0);
        let name = request.interface.clone();
        if !result.ips.is_empty() {
            setup.sysctls.push((format!("ipv4/conf/{name}/arp_notify"), "1"));
        }
        let created = pod::visit(request.namespace()?, move |socket| {
            create(&name, &options)?;
            let configured = configure(socket, &name, &options, mac).and_then(|()| setup.apply_here(socket, &name));
            Ok(configured)
        })?;
        let link = created.inspect_err(|_| link::undo(request))?;
        result.interfaces = vec![link::pod_interface(request, &link)];
        result.dns = request.dns()?;
        Ok(result)
    })
}

/// Creates the device, which stays when this process ends.
fn create(name: &str, options: &Options) -> Result<(), Error> {
    let fail = |cause| Error::kernel("create tap device", name, cause);
    let tap = TapOptions {
        owner: options.owner,
        group: options.group,
        has_queues: options.has_queues,
        // Without an owner or a group the reference plugin calls ip(8), which does not set this.
        has_headers: options.owner.is_some() && options.group.is_some() && options.selinux_context.is_empty(),
    };
    match syscall::tap::create(name, &options.selinux_context, &tap) {
        Err(cause) if cause.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            Err(Error::Unsupported { operation: "create tap device", object: name.to_owned(), module: "tun" })
        }
        created => created.map_err(fail),
    }
}

fn configure(
    socket: &mut rtnl::netlink::Socket,
    name: &str,
    options: &Options,
    mac: Option<[u8; 6]>,
) -> Result<(), Error> {
    let link = pod::link(socket, name)?;
    let mut change = Change { mac: mac.as_ref().map(|mac| &mac[..]), ..Change::flag(UP, true) };
    if options.mtu > 0 {
        change.mtu = Some(options.mtu);
    }
    if !options.bridge.is_empty() {
        change.master = Some(pod::link(socket, &options.bridge)?.index);
    }
    let mut batch = Batch::new();
    change.of(&mut batch, link.index);
    socket.request(batch).map_err(|e| Error::kernel("set up", format!("{name} in the pod"), e))
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    address_management::check(request)?;
    check::attachment(request, "").map(drop)
}
