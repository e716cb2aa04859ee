//! Edits of the specification that CDI devices demand.

use oci::{Hooks, NetDevice, Spec};

use super::{arguments, devices};
use crate::Error;

/// Applies the edits, except their mounts, which are opened first.
pub(crate) fn apply(spec: &mut Spec, edits: &cdi::Edits) -> Result<(), Error> {
    let process = spec.process.get_or_insert_default();
    // Devices belong to the user that the container was given before the edits.
    let user = process.user.clone();
    for entry in &edits.env {
        arguments::set(&mut process.env, entry.clone());
    }
    for gid in &edits.additional_gids {
        if !process.user.additional_gids.contains(gid) {
            process.user.additional_gids.push(*gid);
        }
    }
    if !edits.hooks.is_empty() {
        let hooks = spec.hooks.get_or_insert_with(Hooks::default);
        edits.hooks.iter().for_each(|hook| hook.list(hooks).push(hook.to_oci()));
    }
    let linux = spec.linux.get_or_insert_default();
    let rules = &mut linux.resources.get_or_insert_default().devices;
    devices::add_edits(&mut linux.devices, rules, &edits.device_nodes, &user)?;
    for device in &edits.net_devices {
        let renamed = NetDevice { name: Some(device.name.clone()) };
        linux.net_devices.insert(device.host_interface_name.clone(), renamed);
    }
    if let Some(rdt) = &edits.intel_rdt {
        linux.intel_rdt = Some(rdt.to_oci());
    }
    Ok(())
}
