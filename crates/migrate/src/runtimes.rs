//! Runtime handlers that the configuration of an engine defines: RuntimeClasses of the cluster refer to them.

use doctor::Host;
use toml::Table;

use crate::Source;

/// Returns the handlers besides the engine's default one, sorted.
pub(crate) fn handlers(host: &Host, source: Source) -> Vec<String> {
    let mut names = match source {
        Source::Containerd => containerd(host),
        Source::Crio => crio(host),
        Source::Docker => docker(host),
    };
    names.retain(|name| !matches!(name.as_str(), "runc" | "crun"));
    names.sort();
    names.dedup();
    names
}

fn containerd(host: &Host) -> Vec<String> {
    let config: Table = host.read("/etc/containerd/config.toml").unwrap_or_default().parse().unwrap_or_default();
    // Configuration versions 2 and 3.
    let plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];
    plugins.iter().flat_map(|plugin| keys(&config, &["plugins", plugin, "containerd", "runtimes"])).collect()
}

fn crio(host: &Host) -> Vec<String> {
    let directory = "/etc/crio/crio.conf.d";
    let files = host.list(directory).into_iter().map(|name| format!("{directory}/{name}"));
    let files = std::iter::once("/etc/crio/crio.conf".to_owned()).chain(files);
    files
        .flat_map(|file| {
            let config: Table = host.read(file).unwrap_or_default().parse().unwrap_or_default();
            keys(&config, &["crio", "runtime", "runtimes"])
        })
        .collect()
}

fn docker(host: &Host) -> Vec<String> {
    let text = host.read("/etc/docker/daemon.json").unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let runtimes = config.get("runtimes").and_then(serde_json::Value::as_object);
    runtimes.into_iter().flat_map(|runtimes| runtimes.keys().cloned()).collect()
}

/// Returns the keys of a nested table.
fn keys(table: &Table, path: &[&str]) -> Vec<String> {
    let nested = path.iter().try_fold(table, |table, key| table.get(*key)?.as_table());
    nested.into_iter().flat_map(|table| table.keys().cloned()).collect()
}
