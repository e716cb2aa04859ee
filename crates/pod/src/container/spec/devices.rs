//! Devices of the node in the container, and the rules of its device cgroup.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use oci::{Device, DeviceKind, DeviceRule};
use rustix::fs::{major, minor};

use super::SpecInputs;
use crate::{DeviceMapping, Error, PrivilegedDevices, error::failed};

/// Devices that every container may use: type, major, minor.
const DEFAULT: [(&str, Option<i64>, Option<i64>); 8] = [
    ("c", Some(1), Some(3)),
    ("c", Some(1), Some(5)),
    ("c", Some(1), Some(7)),
    ("c", Some(1), Some(8)),
    ("c", Some(1), Some(9)),
    ("c", Some(5), Some(0)),
    ("c", Some(5), Some(2)),
    ("c", Some(136), None),
];
/// Names in `/dev` that a container creates itself, or that other engines do not pass on either.
const EXCLUDED: [&str; 8] = ["ptmx", "pts", "shm", "fd", "mqueue", "console", ".lxc", "lost+found"];
/// Most nested directories that are searched for devices.
const DEPTH_MAX: usize = 8;
/// Most devices of a container.
const DEVICES_MAX: usize = 65536;

/// Returns the device files to create and the rules of the device cgroup.
pub(super) fn devices(inputs: &SpecInputs<'_>) -> Result<(Vec<Device>, Vec<DeviceRule>), Error> {
    let config = inputs.config();
    let (mut devices, mut rules) = (Vec::new(), Vec::new());
    let all = DeviceRule { allow: true, access: Some("rwm".into()), ..DeviceRule::default() };
    if config.security.privileged && inputs.privileged_devices == PrivilegedDevices::All {
        walk(Path::new("/dev"), "/dev", 0, &mut devices)?;
        rules.push(all);
    } else {
        rules.push(DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() });
        // Creating a device file is harmless if opening it is not allowed.
        rules.extend([rule("c", None, None, "m"), rule("b", None, None, "m")]);
        rules.extend(DEFAULT.map(|(kind, major, minor)| rule(kind, major, minor, "rwm")));
        for mapping in &config.devices {
            for device in mapped_devices(mapping)? {
                rules.extend(rule_of(&device, &mapping.permissions));
                add(&mut devices, with_owner(device, inputs));
            }
        }
        if config.security.privileged && inputs.privileged_devices == PrivilegedDevices::Allowed {
            rules = vec![all];
        }
    }
    Ok((devices, rules))
}

/// Adds the device nodes of CDI devices.
pub(super) fn add_edits(
    devices: &mut Vec<Device>,
    rules: &mut Vec<DeviceRule>,
    nodes: &[cdi::DeviceNode],
    user: &oci::User,
) -> Result<(), Error> {
    for node in nodes {
        let device = cdi_device(node, user)?;
        let permissions = match node.permissions.as_str() {
            "" => "rwm",
            "none" => "",
            permissions => permissions,
        };
        rules.extend(rule_of(&device, permissions));
        add(devices, device);
    }
    Ok(())
}

fn rule(kind: &str, major: Option<i64>, minor: Option<i64>, access: &str) -> DeviceRule {
    DeviceRule { allow: true, kind: Some(kind.to_owned()), major, minor, access: Some(access.to_owned()) }
}

pub(in crate::container) fn rule_of(device: &Device, access: &str) -> Option<DeviceRule> {
    let kind = match device.kind {
        DeviceKind::Block => "b",
        DeviceKind::Char => "c",
        DeviceKind::Fifo => return None,
    };
    (!access.is_empty()).then(|| rule(kind, Some(device.major), Some(device.minor), access))
}

/// Adds a device; it replaces one with the same path.
pub(in crate::container) fn add(devices: &mut Vec<Device>, device: Device) {
    devices.retain(|known| known.path != device.path);
    devices.push(device);
}

/// Sets the container's user as the owner of a device if that is configured, so that devices of device plugins can be
/// opened without being world-accessible (`device_ownership_from_security_context`).
fn with_owner(mut device: Device, inputs: &SpecInputs<'_>) -> Device {
    if inputs.device_ownership && inputs.user.uid != 0 {
        device.uid = Some(inputs.user.uid);
    }
    if inputs.device_ownership && inputs.user.gid != 0 {
        device.gid = Some(inputs.user.gid);
    }
    device
}

/// Builds a device node of a CDI device. Values that its specification leaves out are read from the node's device file.
fn cdi_device(node: &cdi::DeviceNode, user: &oci::User) -> Result<Device, Error> {
    let host = if node.host_path.is_empty() { &node.path } else { &node.host_path };
    let metadata = fs::metadata(host);
    let kind = match node.kind.as_str() {
        "b" => Some(DeviceKind::Block),
        "c" | "u" => Some(DeviceKind::Char),
        "p" => Some(DeviceKind::Fifo),
        _ => None,
    };
    let existing = metadata.as_ref().ok().map(|stat| (file_kind(stat), stat.rdev(), stat.mode() & 0o7777));
    let specified = kind.filter(|kind| node.major != 0 || *kind == DeviceKind::Fifo);
    let (kind, number) = match (specified, existing) {
        (Some(kind), _) => (kind, (node.major, node.minor)),
        (None, Some((Some(actual), number, _))) => {
            if kind.is_some_and(|kind| kind != actual) {
                return Err(Error::invalid(format!("CDI device node {host}: it is not of type {:?}", node.kind)));
            }
            (kind.unwrap_or(actual), (i64::from(major(number)), i64::from(minor(number))))
        }
        (None, Some((None, ..))) => {
            return Err(Error::invalid(format!("CDI device node {host}: it is not a device")));
        }
        (None, None) => {
            let error = metadata.err().map(|error| error.to_string()).unwrap_or_default();
            return Err(Error::invalid(format!("CDI device node {host}: {error}")));
        }
    };
    Ok(Device {
        path: node.path.clone(),
        kind,
        major: number.0,
        minor: number.1,
        file_mode: node.file_mode.or(existing.map(|(_, _, mode)| mode)),
        uid: node.uid.or((user.uid != 0).then_some(user.uid)),
        gid: node.gid.or((user.gid != 0).then_some(user.gid)),
    })
}

fn file_kind(metadata: &fs::Metadata) -> Option<DeviceKind> {
    match metadata.file_type() {
        kind if kind.is_char_device() => Some(DeviceKind::Char),
        kind if kind.is_block_device() => Some(DeviceKind::Block),
        kind if kind.is_fifo() => Some(DeviceKind::Fifo),
        _ => None,
    }
}

fn mapped_devices(mapping: &DeviceMapping) -> Result<Vec<Device>, Error> {
    let host = &mapping.host_path;
    let metadata = fs::metadata(host).map_err(|e| Error::invalid(format!("device {}: {e}", host.display())))?;
    let mut devices = Vec::new();
    if metadata.is_dir() {
        walk(host, &mapping.container_path, 0, &mut devices)?;
    } else {
        devices.extend(device(&metadata, mapping.container_path.clone()));
    }
    if devices.is_empty() {
        return Err(Error::invalid(format!(
            "device {}: it is neither a device nor a directory of devices",
            host.display()
        )));
    }
    Ok(devices)
}

fn walk(directory: &Path, inside: &str, depth: usize, devices: &mut Vec<Device>) -> Result<(), Error> {
    let entries = fs::read_dir(directory).map_err(failed(format_args!("read {}", directory.display())))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| depth > 0 || !EXCLUDED.contains(name)) else { continue };
        // A device may disappear while it is examined; links are not followed.
        let Ok(metadata) = entry.metadata() else { continue };
        let path = format!("{inside}/{name}");
        if metadata.is_dir() {
            if depth < DEPTH_MAX && devices.len() < DEVICES_MAX {
                walk(&entry.path(), &path, depth + 1, devices)?;
            }
        } else {
            devices.extend(device(&metadata, path));
        }
    }
    Ok(())
}

fn device(metadata: &fs::Metadata, path: String) -> Option<Device> {
    let kind = file_kind(metadata).filter(|kind| *kind != DeviceKind::Fifo)?;
    Some(Device {
        path,
        kind,
        major: i64::from(major(metadata.rdev())),
        minor: i64::from(minor(metadata.rdev())),
        file_mode: Some(metadata.mode() & 0o7777),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
    })
}
