//! The node's end as a port of the bridge.

use rtnl::{
    BridgePort, Link, PortVlan,
    netlink::{Batch, Socket},
};

use super::options::Options;
use crate::Error;

/// Sets hairpin mode, isolation and VLANs.
pub(super) fn configure(socket: &mut Socket, port: &Link, options: &Options) -> Result<(), Error> {
    let mut batch = Batch::new();
    BridgePort { hairpin: options.hairpin, isolated: options.is_isolated }.set(&mut batch, port.index);
    socket.request(batch).map_err(|e| Error::kernel("configure bridge port", &port.name, e))?;
    let trunk = options.trunk.as_deref().unwrap_or_default();
    set_vlans(socket, port, options.vlan, trunk, options.keeps_default_vlan)
}

/// Sets the VLANs of a port: one for frames without a tag, and others for frames with one.
pub(super) fn set_vlans(
    socket: &mut Socket,
    port: &Link,
    vlan: u16,
    trunk: &[u16],
    keeps_default: bool,
) -> Result<(), Error> {
    if vlan == 0 && trunk.is_empty() {
        return Ok(());
    }
    let fail =
        |refusal| Error::of_module("set VLANs of bridge port", &port.name, "8021q (bridge VLAN filtering)", refusal);
    let mut batch = Batch::new();
    if !keeps_default {
        let vlans = rtnl::port_vlans(socket).map_err(fail)?;
        for (_, id) in vlans.into_iter().filter(|(index, _)| *index == port.index) {
            PortVlan { id, native: false }.delete(&mut batch, port.index);
        }
    }
    if vlan != 0 {
        PortVlan { id: vlan, native: true }.add(&mut batch, port.index);
    }
    for id in trunk {
        PortVlan { id: *id, native: false }.add(&mut batch, port.index);
    }
    if vlan == 0 {
        // A trunk without a native VLAN has the default one.
        PortVlan { id: 1, native: true }.add(&mut batch, port.index);
    }
    socket.request(batch).map_err(fail)
}
