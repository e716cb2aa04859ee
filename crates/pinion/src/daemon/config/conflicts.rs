//! Checks keys against each other.

use std::path::Path;

use super::{Config, reader::Reader, value::network};

/// Records every conflict between keys.
pub(super) fn check(config: &Config, from: &mut Reader) {
    directories(config, from);
    addresses(config, from);
    overlay(config, from);
    subnets(config, from);
}

/// Checks that the directories are not nested: state is cleared at boot, and a tmpfs may be mounted on its directory.
fn directories(config: &Config, from: &mut Reader) {
    let within = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    if within(&config.state_dir, &config.data_dir) {
        let cause = format!(
            "{} and state_dir {} must not be nested: state is cleared at boot",
            config.data_dir.display(),
            config.state_dir.display()
        );
        from.conflict(&["data_dir", "state_dir"], &cause);
    }
    if config.netns_dir.starts_with(&config.data_dir) || config.data_dir.starts_with(&config.netns_dir) {
        from.conflict(&["netns_dir", "data_dir"], "netns_dir and data_dir must not be nested");
    }
    let pinned = ["ipcns", "utsns", "userns"].into_iter();
    let pinned = pinned.filter_map(|name| Some(config.namespaces_dir.as_ref()?.join(name)));
    let others = [&config.state_dir, &config.data_dir, &config.netns_dir];
    if pinned.into_iter().any(|directory| others.iter().any(|other| within(&directory, other))) {
        from.conflict(&["namespaces_dir"], "must not be in state_dir, data_dir or netns_dir");
    }
    if config.socket.starts_with(&config.netns_dir) || config.socket.starts_with(&config.data_dir) {
        from.conflict(&["socket"], "must not be in data_dir or netns_dir");
    }
    if config.cadvisor.socket.as_ref() == Some(&config.socket) {
        from.conflict(&["cadvisor.socket", "socket"], "is the socket of the CRI, too; use different paths");
    }
    if config.socket == config.state_dir {
        from.conflict(&["socket", "state_dir"], "socket and state_dir must not be the same path");
    }
}

fn addresses(config: &Config, from: &mut Reader) {
    let (Some(metrics), streaming) = (config.metrics.address, config.streaming.address) else { return };
    let overlap = metrics.ip() == streaming.ip() || metrics.ip().is_unspecified() || streaming.ip().is_unspecified();
    if metrics.port() == streaming.port() && metrics.port() != 0 && overlap {
        let cause = format!("{metrics} conflicts with streaming.address; use different ports");
        from.conflict(&["metrics.address", "streaming.address"], &cause);
    }
}

fn overlay(config: &Config, from: &mut Reader) {
    let overlay = &config.network.overlay;
    if overlay.cert_file.is_some() != overlay.key_file.is_some() {
        let keys = ["network.overlay.cert_file", "network.overlay.key_file"];
        from.conflict(&keys, "cert_file and key_file belong together");
    }
    if overlay.username.is_some() != overlay.password_file.is_some() {
        let keys = ["network.overlay.username", "network.overlay.password_file"];
        from.conflict(&keys, "username and password_file belong together");
    }
}

fn subnets(config: &Config, from: &mut Reader) {
    let is_unusable = |text: &str| network(text).is_some_and(|(ip, _)| ip.is_loopback() || ip.is_multicast());
    let network = &config.network;
    if is_unusable(&network.subnet) {
        let cause = format!("{:?} is a loopback or multicast subnet, which pods cannot use", network.subnet);
        from.conflict(&["network.subnet"], &cause);
    }
    if let Some(subnet) = network.subnet6.as_deref().filter(|subnet| is_unusable(subnet)) {
        let cause = format!("{subnet:?} is a loopback or multicast subnet, which pods cannot use");
        from.conflict(&["network.subnet6"], &cause);
    }
    if ["lo", "all", "default"].contains(&network.bridge.as_str()) {
        from.conflict(&["network.bridge"], &format!("{:?} is reserved by the kernel", network.bridge));
    }
}
