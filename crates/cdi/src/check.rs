//! Everything that can be wrong with a file, told with the field's name.

use std::collections::HashSet;

use crate::{
    DeviceNode, Hook, Mount, NetDevice,
    name::{check_device, check_kind},
    spec::{ContainerEdits, Spec},
    version,
};

/// Most devices of a file, and most entries of one list of edits.
const MOST: usize = 16_384;
/// The kernel's PATH_MAX.
const PATH_MAX: usize = 4096;
/// IFNAMSIZ without the NUL.
const INTERFACE_MAX: usize = 15;
/// The points of a container's life (runtime-spec config.md, "POSIX-platform Hooks").
pub(crate) const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

pub(crate) fn check(spec: &Spec) -> Result<(), String> {
    version::check(spec)?;
    check_kind(&spec.kind).map_err(|why| format!("kind: {:?}: {why}", spec.kind))?;
    if spec.devices.is_empty() {
        return Err("devices: there are none".to_owned());
    }
    count("devices", spec.devices.len())?;
    let mut seen = HashSet::new();
    for (at, device) in spec.devices.iter().enumerate() {
        let at = format!("devices[{at}]");
        check_device(&device.name).map_err(|why| format!("{at}.name: {:?}: {why}", device.name))?;
        if !seen.insert(&device.name) {
            return Err(format!("{at}.name: {:?} is there twice", device.name));
        }
        if device.container_edits == ContainerEdits::default() {
            return Err(format!("{at}.containerEdits: device {:?} changes nothing", device.name));
        }
        edits(&format!("{at}.containerEdits"), &device.container_edits)?;
    }
    edits("containerEdits", &spec.container_edits)
}

fn edits(at: &str, edits: &ContainerEdits) -> Result<(), String> {
    variables(&format!("{at}.env"), &edits.env)?;
    each(&format!("{at}.deviceNodes"), &edits.device_nodes, node)?;
    each(&format!("{at}.hooks"), &edits.hooks, hook)?;
    each(&format!("{at}.mounts"), &edits.mounts, mount)?;
    each(&format!("{at}.netDevices"), &edits.net_devices, interface)?;
    count(&format!("{at}.additionalGids"), edits.additional_gids.len())?;
    if let Some(rdt) = &edits.intel_rdt {
        let id = rdt.clos_id.as_str();
        if id != "/" && (id.len() >= PATH_MAX || matches!(id, "." | "..") || id.contains(['/', '\n', '\0'])) {
            return Err(format!("{at}.intelRdt.closID: {id:?} is no file name"));
        }
    }
    Ok(())
}

fn each<T>(at: &str, list: &[T], check: fn(&str, &T) -> Result<(), String>) -> Result<(), String> {
    count(at, list.len())?;
    list.iter().enumerate().try_for_each(|(index, one)| check(&format!("{at}[{index}]"), one))
}

fn count(at: &str, count: usize) -> Result<(), String> {
    if count > MOST { Err(format!("{at}: {count} entries; at most {MOST}")) } else { Ok(()) }
}

fn variables(at: &str, list: &[String]) -> Result<(), String> {
    count(at, list.len())?;
    let good = |entry: &str| !entry.contains('\0') && entry.find('=').is_some_and(|at| at > 0);
    match list.iter().position(|entry| !good(entry)) {
        Some(index) => Err(format!("{at}[{index}]: {:?} is not NAME=value", list[index])),
        None => Ok(()),
    }
}

fn path(at: &str, path: &str) -> Result<(), String> {
    match path.starts_with('/') && path.len() < PATH_MAX && !path.contains('\0') {
        true => Ok(()),
        false => Err(format!("{at}: {path:?} is not an absolute path")),
    }
}

fn node(at: &str, node: &DeviceNode) -> Result<(), String> {
    path(&format!("{at}.path"), &node.path)?;
    if !node.host_path.is_empty() {
        path(&format!("{at}.hostPath"), &node.host_path)?;
    }
    if !matches!(node.kind.as_str(), "" | "b" | "c" | "u" | "p") {
        return Err(format!("{at}.type: {:?} is not b, c, u or p", node.kind));
    }
    if node.major < 0 || node.minor < 0 {
        return Err(format!("{at}: a device number is negative"));
    }
    if node.permissions != "none" && node.permissions.contains(|c| !matches!(c, 'r' | 'w' | 'm')) {
        return Err(format!("{at}.permissions: {:?} is not of r, w and m, nor \"none\"", node.permissions));
    }
    Ok(())
}

fn hook(at: &str, hook: &Hook) -> Result<(), String> {
    if !HOOKS.contains(&hook.hook_name.as_str()) {
        return Err(format!("{at}.hookName: {:?} is not one of {}", hook.hook_name, HOOKS.join(", ")));
    }
    path(&format!("{at}.path"), &hook.path)?;
    count(&format!("{at}.args"), hook.args.len())?;
    if hook.args.iter().any(|word| word.contains('\0')) {
        return Err(format!("{at}.args: has a NUL byte"));
    }
    variables(&format!("{at}.env"), &hook.env)?;
    match hook.timeout {
        Some(..=0) => Err(format!("{at}.timeout: must be more than 0")),
        _ => Ok(()),
    }
}

fn mount(at: &str, mount: &Mount) -> Result<(), String> {
    path(&format!("{at}.containerPath"), &mount.container_path)?;
    if mount.host_path.is_empty() || mount.host_path.contains('\0') {
        return Err(format!("{at}.hostPath: {:?} is no path", mount.host_path));
    }
    if mount.is_bind() {
        path(&format!("{at}.hostPath"), &mount.host_path)?;
    }
    count(&format!("{at}.options"), mount.options.len())?;
    match mount.options.iter().find(|word| word.contains('\0')) {
        Some(word) => Err(format!("{at}.options: {word:?} has a NUL byte")),
        None => Ok(()),
    }
}

fn interface(at: &str, device: &NetDevice) -> Result<(), String> {
    for (field, name) in [("hostInterfaceName", &device.host_interface_name), ("name", &device.name)] {
        let plain = !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
        if name.is_empty() || name.len() > INTERFACE_MAX || !plain || matches!(name.as_str(), "." | "..") {
            return Err(format!("{at}.{field}: {name:?} is no name of a network interface"));
        }
    }
    Ok(())
}
