//! Devices of the node in the container, and which it may use.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use oci::{Device, DeviceKind, DeviceRule};
use rustix::fs::{major, minor};

use super::Facts;
use crate::{DeviceMapping, Error, error::failed};

/// What every container may use: kind, major, minor.
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
/// What a container makes for itself, or other engines do not pass on.
const LEFT_OUT: [&str; 8] = ["ptmx", "pts", "shm", "fd", "mqueue", "console", ".lxc", "lost+found"];
/// Directories in `/dev` are no deeper, and hold no more.
const DEPTH: usize = 8;
const MOST: usize = 65536;

/// Device files to make, and the rules of the device cgroup.
pub(super) fn devices(facts: &Facts<'_>) -> Result<(Vec<Device>, Vec<DeviceRule>), Error> {
    let config = facts.config();
    let (mut devices, mut rules) = (Vec::new(), Vec::new());
    if config.security.privileged {
        walk(Path::new("/dev"), "/dev", 0, &mut devices)?;
        rules.push(DeviceRule { allow: true, access: Some("rwm".into()), ..DeviceRule::default() });
    } else {
        rules.push(DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() });
        // Making a device file is harmless where opening it is not allowed.
        rules.extend([rule("c", None, None, "m"), rule("b", None, None, "m")]);
        rules.extend(DEFAULT.map(|(kind, major, minor)| rule(kind, major, minor, "rwm")));
        for mapping in &config.devices {
            for device in mapped(mapping)? {
                rules.extend(rule_of(&device, &mapping.permissions));
                add(&mut devices, owned(device, facts));
            }
        }
    }
    for node in &facts.edits.device_nodes {
        let device = described(node, &facts.user)?;
        let permissions = match node.permissions.as_str() {
            "" => "rwm",
            "none" => "",
            permissions => permissions,
        };
        rules.extend(rule_of(&device, permissions));
        add(&mut devices, device);
    }
    Ok((devices, rules))
}

fn rule(kind: &str, major: Option<i64>, minor: Option<i64>, access: &str) -> DeviceRule {
    DeviceRule { allow: true, kind: Some(kind.to_owned()), major, minor, access: Some(access.to_owned()) }
}

fn rule_of(device: &Device, access: &str) -> Option<DeviceRule> {
    let kind = match device.kind {
        DeviceKind::Block => "b",
        DeviceKind::Char => "c",
        DeviceKind::Fifo => return None,
    };
    (!access.is_empty()).then(|| rule(kind, Some(device.major), Some(device.minor), access))
}

/// The last of a path counts.
fn add(devices: &mut Vec<Device>, device: Device) {
    devices.retain(|known| known.path != device.path);
    devices.push(device);
}

/// As the node has it, or as its user's: a device plugin's devices then need no open mode (`device_ownership…`).
fn owned(mut device: Device, facts: &Facts<'_>) -> Device {
    if facts.own_devices && facts.user.uid != 0 {
        device.uid = Some(facts.user.uid);
    }
    if facts.own_devices && facts.user.gid != 0 {
        device.gid = Some(facts.user.gid);
    }
    device
}

/// A node of a CDI device: what its file does not say is asked of the node's own.
fn described(node: &cdi::DeviceNode, user: &oci::User) -> Result<Device, Error> {
    let host = if node.host_path.is_empty() { &node.path } else { &node.host_path };
    let about = fs::metadata(host);
    let kind = match node.kind.as_str() {
        "b" => Some(DeviceKind::Block),
        "c" | "u" => Some(DeviceKind::Char),
        "p" => Some(DeviceKind::Fifo),
        _ => None,
    };
    let there = about.as_ref().ok().map(|about| (file_kind(about), about.rdev(), about.mode() & 0o7777));
    let whole = kind.filter(|kind| node.major != 0 || *kind == DeviceKind::Fifo);
    let (kind, number) = match (whole, there) {
        (Some(kind), _) => (kind, (node.major, node.minor)),
        (None, Some((Some(found), number, _))) => {
            if kind.is_some_and(|kind| kind != found) {
                return Err(Error::invalid(format!("CDI device node {host}: it is not of type {:?}", node.kind)));
            }
            (kind.unwrap_or(found), (i64::from(major(number)), i64::from(minor(number))))
        }
        (None, Some((None, ..))) => {
            return Err(Error::invalid(format!("CDI device node {host}: it is not a device")));
        }
        (None, None) => {
            let why = about.err().map(|error| error.to_string()).unwrap_or_default();
            return Err(Error::invalid(format!("CDI device node {host}: {why}")));
        }
    };
    Ok(Device {
        path: node.path.clone(),
        kind,
        major: number.0,
        minor: number.1,
        file_mode: node.file_mode.or(there.map(|(_, _, mode)| mode)),
        uid: node.uid.or((user.uid != 0).then_some(user.uid)),
        gid: node.gid.or((user.gid != 0).then_some(user.gid)),
    })
}

fn file_kind(about: &fs::Metadata) -> Option<DeviceKind> {
    match about.file_type() {
        kind if kind.is_char_device() => Some(DeviceKind::Char),
        kind if kind.is_block_device() => Some(DeviceKind::Block),
        kind if kind.is_fifo() => Some(DeviceKind::Fifo),
        _ => None,
    }
}

fn mapped(mapping: &DeviceMapping) -> Result<Vec<Device>, Error> {
    let host = &mapping.host_path;
    let about = fs::metadata(host).map_err(|e| Error::invalid(format!("device {}: {e}", host.display())))?;
    let mut devices = Vec::new();
    if about.is_dir() {
        walk(host, &mapping.container_path, 0, &mut devices)?;
    } else {
        devices.extend(device(&about, mapping.container_path.clone()));
    }
    if devices.is_empty() {
        return Err(Error::invalid(format!(
            "device {}: it is neither a device nor a directory of devices",
            host.display()
        )));
    }
    Ok(devices)
}

fn walk(directory: &Path, inside: &str, depth: usize, found: &mut Vec<Device>) -> Result<(), Error> {
    let entries = fs::read_dir(directory).map_err(failed(format_args!("read {}", directory.display())))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| depth > 0 || !LEFT_OUT.contains(name)) else { continue };
        // A device may go while it is looked at; links are not followed.
        let Ok(about) = entry.metadata() else { continue };
        let path = format!("{inside}/{name}");
        if about.is_dir() {
            if depth < DEPTH && found.len() < MOST {
                walk(&entry.path(), &path, depth + 1, found)?;
            }
        } else {
            found.extend(device(&about, path));
        }
    }
    Ok(())
}

fn device(about: &fs::Metadata, path: String) -> Option<Device> {
    let kind = file_kind(about).filter(|kind| *kind != DeviceKind::Fifo)?;
    Some(Device {
        path,
        kind,
        major: i64::from(major(about.rdev())),
        minor: i64::from(minor(about.rdev())),
        file_mode: Some(about.mode() & 0o7777),
        uid: Some(about.uid()),
        gid: Some(about.gid()),
    })
}
