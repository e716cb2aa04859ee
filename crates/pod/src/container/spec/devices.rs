//! Devices of the node in the container, and which it may use.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use oci::{Device, DeviceKind, DeviceRule};
use rustix::fs::{major, minor};

use crate::{ContainerConfig, DeviceMapping, Error, error::failed};

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
/// Folders in `/dev` are no deeper, and hold no more.
const DEPTH: usize = 8;
const MOST: usize = 65536;

/// Device files to make, and the rules of the device cgroup.
pub(super) fn devices(config: &ContainerConfig) -> Result<(Vec<Device>, Vec<DeviceRule>), Error> {
    if config.security.privileged {
        let mut devices = Vec::new();
        walk(Path::new("/dev"), "/dev", 0, &mut devices)?;
        let all = DeviceRule { allow: true, access: Some("rwm".into()), ..DeviceRule::default() };
        return Ok((devices, vec![all]));
    }
    let rule = |kind: &str, major, minor, access: &str| DeviceRule {
        allow: true,
        kind: Some(kind.to_owned()),
        major,
        minor,
        access: Some(access.to_owned()),
    };
    let mut rules = vec![DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() }];
    // Making a device file is harmless where opening it is not allowed.
    rules.extend([rule("c", None, None, "m"), rule("b", None, None, "m")]);
    rules.extend(DEFAULT.map(|(kind, major, minor)| rule(kind, major, minor, "rwm")));
    let mut devices = Vec::new();
    for mapping in &config.devices {
        for device in mapped(mapping)? {
            let kind = if device.kind == DeviceKind::Block { "b" } else { "c" };
            rules.push(rule(kind, Some(device.major), Some(device.minor), &mapping.permissions));
            devices.push(device);
        }
    }
    Ok((devices, rules))
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
            "device {}: it is neither a device nor a folder of devices",
            host.display()
        )));
    }
    Ok(devices)
}

fn walk(folder: &Path, inside: &str, depth: usize, found: &mut Vec<Device>) -> Result<(), Error> {
    let entries = fs::read_dir(folder).map_err(failed(format_args!("read {}", folder.display())))?;
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
    let kind = match about.file_type() {
        kind if kind.is_char_device() => DeviceKind::Char,
        kind if kind.is_block_device() => DeviceKind::Block,
        _ => return None,
    };
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
