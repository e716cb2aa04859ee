//! Checks that the version of a file includes all fields that it uses.

use crate::spec::{ContainerEdits, Spec};

/// The released versions, in order.
const KNOWN: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

pub(crate) fn check(spec: &Spec) -> Result<(), String> {
    let version = spec.cdi_version.strip_prefix('v').unwrap_or(&spec.cdi_version);
    let Some(position) = KNOWN.iter().position(|known| *known == version) else {
        return Err(format!("cdiVersion: {version:?} is not one of {}", KNOWN.join(", ")));
    };
    let (required, feature) = required_version(spec);
    let required_position = KNOWN.iter().position(|known| *known == required).unwrap_or(0);
    match position < required_position {
        true => Err(format!("cdiVersion: {version} does not support {feature}, which requires {required}")),
        false => Ok(()),
    }
}

/// Returns the lowest version that includes all used fields, and the feature that requires it.
fn required_version(spec: &Spec) -> (&'static str, &'static str) {
    let all = || std::iter::once(&spec.container_edits).chain(spec.devices.iter().map(|d| &d.container_edits));
    let any = |uses: fn(&ContainerEdits) -> bool| all().any(uses);
    let rdt = |uses: fn(&crate::IntelRdt) -> bool| all().filter_map(|e| e.intel_rdt.as_ref()).any(uses);
    let class_has_dot = spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
    if any(|e| !e.net_devices.is_empty()) {
        ("1.1.0", "netDevices")
    } else if rdt(|r| !r.schemata.is_empty() || r.enable_monitoring) {
        ("1.1.0", "schemata and enableMonitoring")
    } else if any(|e| e.intel_rdt.is_some()) {
        ("0.7.0", "intelRdt")
    } else if any(|e| !e.additional_gids.is_empty()) {
        ("0.7.0", "additionalGids")
    } else if !spec.annotations.is_empty() || spec.devices.iter().any(|d| !d.annotations.is_empty()) {
        ("0.6.0", "annotations")
    } else if class_has_dot {
        ("0.6.0", "a dot in the class")
    } else if any(|e| e.device_nodes.iter().any(|node| !node.host_path.is_empty())) {
        ("0.5.0", "hostPath of deviceNodes")
    } else if spec.devices.iter().any(|d| d.name.starts_with(|c: char| c.is_ascii_digit())) {
        ("0.5.0", "names that begin with a digit")
    } else if any(|e| e.mounts.iter().any(|mount| !mount.kind.is_empty())) {
        ("0.4.0", "type of mounts")
    } else {
        ("0.3.0", "")
    }
}
