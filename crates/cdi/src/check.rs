//! Validates a specification file; errors contain the name of the field.

use std::collections::HashSet;

use crate::{
    DeviceNode, Hook, Mount, NetDevice,
    name::{check_device, check_kind},
    spec::{ContainerEdits, Spec},
    version,
};

/// The maximum number of devices of a file, and of entries of one list of edits.
const ENTRIES_MAX: usize = 16_384;
/// The kernel's PATH_MAX.
const PATH_MAX: usize = 4096;
/// IFNAMSIZ without the NUL.
const INTERFACE_MAX: usize = 15;
/// The names of hooks (runtime-spec config.md, "POSIX-platform Hooks").
pub(crate) const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

pub(crate) fn check(spec: &Spec) -> Result<(), String> {
    version::check(spec)?;
    check_kind(&spec.kind).map_err(|reason| format!("kind: {:?}: {reason}", spec.kind))?;
    if spec.devices.is_empty() {
        return Err("devices: must not be empty".to_owned());
    }
    check_count("devices", spec.devices.len())?;
    let mut seen = HashSet::new();
    for (at, device) in spec.devices.iter().enumerate() {
        let field = format!("devices[{at}]");
        check_device(&device.name).map_err(|reason| format!("{field}.name: {:?}: {reason}", device.name))?;
        if !seen.insert(&device.name) {
            return Err(format!("{field}.name: duplicate device {:?}", device.name));
        }
        if device.container_edits == ContainerEdits::default() {
            return Err(format!("{field}.containerEdits: device {:?} has no edits", device.name));
        }
        check_edits(&format!("{field}.containerEdits"), &device.container_edits)?;
    }
    check_edits("containerEdits", &spec.container_edits)
}

fn check_edits(field: &str, edits: &ContainerEdits) -> Result<(), String> {
    check_env(&format!("{field}.env"), &edits.env)?;
    check_each(&format!("{field}.deviceNodes"), &edits.device_nodes, check_node)?;
    check_each(&format!("{field}.hooks"), &edits.hooks, check_hook)?;
    check_each(&format!("{field}.mounts"), &edits.mounts, check_mount)?;
    check_each(&format!("{field}.netDevices"), &edits.net_devices, check_interface)?;
    check_count(&format!("{field}.additionalGids"), edits.additional_gids.len())?;
    if let Some(rdt) = &edits.intel_rdt {
        let id = rdt.clos_id.as_str();
        if id != "/" && (id.len() >= PATH_MAX || matches!(id, "." | "..") || id.contains(['/', '\n', '\0'])) {
            return Err(format!("{field}.intelRdt.closID: {id:?} is not a file name"));
        }
    }
    Ok(())
}

fn check_each<T>(field: &str, list: &[T], check: fn(&str, &T) -> Result<(), String>) -> Result<(), String> {
    check_count(field, list.len())?;
    list.iter().enumerate().try_for_each(|(index, entry)| check(&format!("{field}[{index}]"), entry))
}

fn check_count(field: &str, count: usize) -> Result<(), String> {
    if count > ENTRIES_MAX { Err(format!("{field}: {count} entries, more than {ENTRIES_MAX}")) } else { Ok(()) }
}

fn check_env(field: &str, list: &[String]) -> Result<(), String> {
    check_count(field, list.len())?;
    let is_valid = |entry: &str| !entry.contains('\0') && entry.find('=').is_some_and(|at| at > 0);
    match list.iter().position(|entry| !is_valid(entry)) {
        Some(index) => Err(format!("{field}[{index}]: {:?} is not NAME=value", list[index])),
        None => Ok(()),
    }
}

fn check_path(field: &str, path: &str) -> Result<(), String> {
    match path.starts_with('/') && path.len() < PATH_MAX && !path.contains('\0') {
        true => Ok(()),
        false => Err(format!("{field}: {path:?} is not an absolute path")),
    }
}

fn check_node(field: &str, node: &DeviceNode) -> Result<(), String> {
    check_path(&format!("{field}.path"), &node.path)?;
    if !node.host_path.is_empty() {
        check_path(&format!("{field}.hostPath"), &node.host_path)?;
    }
    if !matches!(node.kind.as_str(), "" | "b" | "c" | "u" | "p") {
        return Err(format!("{field}.type: {:?} is not b, c, u or p", node.kind));
    }
    if node.major < 0 || node.minor < 0 {
        return Err(format!("{field}: a device number is negative"));
    }
    if node.permissions != "none" && node.permissions.contains(|c| !matches!(c, 'r' | 'w' | 'm')) {
        return Err(format!(
            "{field}.permissions: {:?} is neither \"none\" nor a combination of r, w and m",
            node.permissions
        ));
    }
    Ok(())
}

fn check_hook(field: &str, hook: &Hook) -> Result<(), String> {
    if !HOOKS.contains(&hook.hook_name.as_str()) {
        return Err(format!("{field}.hookName: {:?} is not one of {}", hook.hook_name, HOOKS.join(", ")));
    }
    check_path(&format!("{field}.path"), &hook.path)?;
    check_count(&format!("{field}.args"), hook.args.len())?;
    if hook.args.iter().any(|word| word.contains('\0')) {
        return Err(format!("{field}.args: contains a NUL byte"));
    }
    check_env(&format!("{field}.env"), &hook.env)?;
    match hook.timeout {
        Some(..=0) => Err(format!("{field}.timeout: must be greater than 0")),
        _ => Ok(()),
    }
}

fn check_mount(field: &str, mount: &Mount) -> Result<(), String> {
    check_path(&format!("{field}.containerPath"), &mount.container_path)?;
    if mount.host_path.is_empty() || mount.host_path.contains('\0') {
        return Err(format!("{field}.hostPath: {:?} is not a path", mount.host_path));
    }
    if mount.is_bind() {
        check_path(&format!("{field}.hostPath"), &mount.host_path)?;
    }
    check_count(&format!("{field}.options"), mount.options.len())?;
    match mount.options.iter().find(|word| word.contains('\0')) {
        Some(word) => Err(format!("{field}.options: {word:?} contains a NUL byte")),
        None => Ok(()),
    }
}

fn check_interface(field: &str, device: &NetDevice) -> Result<(), String> {
    for (member, name) in [("hostInterfaceName", &device.host_interface_name), ("name", &device.name)] {
        let plain = !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
        if name.is_empty() || name.len() > INTERFACE_MAX || !plain || matches!(name.as_str(), "." | "..") {
            return Err(format!("{field}.{member}: {name:?} is not a name of a network interface"));
        }
    }
    Ok(())
}
