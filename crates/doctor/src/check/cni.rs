//! CNI: the configuration that is used, and its plugins.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Node, finding::Verdict};

/// Types of plugins that the daemon implements itself. `firewall` is not among them: by default it needs its program.
const BUILT_IN: [&str; 16] = [
    "bandwidth",
    "bridge",
    "dummy",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];
/// Parts of the names of files that other engines' packages install.
const OTHERS: [(&str, &str); 4] =
    [("crio", "CRI-O"), ("podman", "Podman"), ("containerd", "containerd"), ("docker", "Docker")];

/// Returns the CNI configurations by name, as the daemon selects them: the first is used.
pub(super) fn files(node: &Node) -> Vec<PathBuf> {
    let directory = &node.settings.cni_conf_dir;
    let names = node.host.list(directory).into_iter().map(|name| directory.join(name));
    names
        .filter(|path| path.extension().is_some_and(|end| end == "conflist" || end == "conf" || end == "json"))
        .collect()
}

/// Returns the plugins of a configuration or a list of them.
fn types(node: &Node, path: &Path) -> Result<Vec<String>, String> {
    let text = node.host.try_read(path).map_err(|error| error.to_string())?;
    let config: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let all: Vec<&Value> = match config.get("plugins").and_then(Value::as_array) {
        Some(list) => list.iter().collect(),
        None => vec![&config],
    };
    let name = |value: &Value| value.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let types: Vec<String> = all.iter().filter_map(|plugin| plugin.get("type").and_then(name)).collect();
    if types.is_empty() {
        return Err("it lists no plugin".to_owned());
    }
    let ipam = all.iter().filter_map(|plugin| plugin.get("ipam")?.get("type").and_then(name));
    Ok(types.iter().cloned().chain(ipam).collect())
}

pub(super) fn config(node: &Node) -> Vec<Verdict> {
    let files = files(node);
    let directory = node.settings.cni_conf_dir.display();
    let Some(first) = files.first() else {
        return vec![Verdict::notice(format!(
            "{directory} has no configuration: pods use the built-in network {}",
            node.settings.bridge
        ))];
    };
    let name = first.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut verdicts = vec![match types(node, first) {
        Ok(plugins) => Verdict::ok(format!("{}: {}", first.display(), plugins.join(", "))),
        Err(error) => Verdict::problem(format!("{}: {error}", first.display()))
            .fix(format!("correct it, or remove it: rm {}", first.display())),
    }];
    if let Some((_, engine)) = OTHERS.iter().find(|(part, _)| name.contains(part)) {
        verdicts.push(
            Verdict::notice(format!("{} is from {engine}; for the built-in network remove it", first.display()))
                .fix(format!("rm {}", first.display())),
        );
    }
    if files.len() > 1 {
        let others: Vec<String> = files[1..].iter().map(|path| path.display().to_string()).collect();
        verdicts.push(Verdict::notice(format!("not used, because {name} comes first: {}", others.join(", "))));
    }
    verdicts
}

pub(super) fn plugins(node: &Node) -> Vec<Verdict> {
    let plugins = files(node).first().and_then(|path| types(node, path).ok()).unwrap_or_default();
    let mut verdicts = Vec::new();
    for plugin in plugins.iter().filter(|plugin| !BUILT_IN.contains(&plugin.as_str())) {
        let exists = |directory: &PathBuf| node.host.path(directory.join(plugin)).is_file();
        if plugin.contains('/') || !node.settings.cni_bin_dirs.iter().any(exists) {
            let directories: Vec<String> =
                node.settings.cni_bin_dirs.iter().map(|directory| directory.display().to_string()).collect();
            verdicts.push(
                Verdict::problem(format!("the plugin {plugin} is not in {}", directories.join(", ")))
                    .fix("install containernetworking-plugins, or the network add-on of the cluster"),
            );
        }
    }
    if verdicts.is_empty() { vec![Verdict::ok("every plugin is built in or installed")] } else { verdicts }
}
