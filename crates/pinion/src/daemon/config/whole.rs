//! What keys say together.

use std::{net::IpAddr, path::Path};

use super::{Config, reader::Reader, value::network};

/// Notes every contradiction.
pub(super) fn check(config: &Config, from: &mut Reader) {
    directories(config, from);
    addresses(config, from);
    subnets(config, from);
}

/// State is cleared at boot and its directory may become a mount of its own: nothing else may live in it, nor it in
/// them.
fn directories(config: &Config, from: &mut Reader) {
    let within = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    if within(&config.state_dir, &config.data_dir) {
        let why = format!(
            "{} and state_dir {} must not lie in one another: state is cleared at boot",
            config.data_dir.display(),
            config.state_dir.display()
        );
        from.conflict(&["data_dir", "state_dir"], &why);
    }
    if config.netns_dir.starts_with(&config.data_dir) || config.data_dir.starts_with(&config.netns_dir) {
        from.conflict(&["netns_dir", "data_dir"], "netns_dir and data_dir must not lie in one another");
    }
    if config.socket.starts_with(&config.netns_dir) || config.socket.starts_with(&config.data_dir) {
        from.conflict(&["socket"], "must not lie in data_dir or netns_dir");
    }
    if config.socket == config.state_dir {
        from.conflict(&["socket", "state_dir"], "socket and state_dir are one path");
    }
}

fn addresses(config: &Config, from: &mut Reader) {
    let (Some(metrics), streaming) = (config.metrics.address, config.streaming.address) else { return };
    let everywhere = |ip: IpAddr| ip.is_unspecified();
    let meet = metrics.ip() == streaming.ip() || everywhere(metrics.ip()) || everywhere(streaming.ip());
    if metrics.port() == streaming.port() && metrics.port() != 0 && meet {
        let why = format!("{metrics} is streaming.address too; each needs a port of its own");
        from.conflict(&["metrics.address", "streaming.address"], &why);
    }
}

fn subnets(config: &Config, from: &mut Reader) {
    let loopback = |text: &str| network(text).is_some_and(|(ip, _)| ip.is_loopback() || ip.is_multicast());
    let network = &config.network;
    if loopback(&network.subnet) {
        from.conflict(&["network.subnet"], &format!("{:?} is no subnet for pods", network.subnet));
    }
    if network.subnet6.as_deref().is_some_and(loopback) {
        from.conflict(
            &["network.subnet6"],
            &format!("{:?} is no subnet for pods", network.subnet6.as_deref().unwrap_or("")),
        );
    }
    if ["lo", "all", "default"].contains(&network.bridge.as_str()) {
        from.conflict(&["network.bridge"], &format!("{:?} means something else to the kernel", network.bridge));
    }
}
