//! The part of the daemon's configuration that the checks need.

use std::{net::IpAddr, path::PathBuf};

use doctor::Settings;

use crate::{
    Failure,
    daemon::{
        Source,
        config::{CgroupDriver, Config, Layers},
        monitor,
    },
};

/// Reads the configuration files; if they are invalid, the result has the defaults and the errors.
pub(super) fn load(file: Option<PathBuf>, socket: Option<PathBuf>) -> Result<Settings, Failure> {
    let source = Source { file, socket: socket.clone(), ..Source::default() };
    let (config, error) = match source.load() {
        Ok((config, _)) => (config, None),
        Err(error) => {
            let defaults = Layers::of_text("no file", "").and_then(Config::of);
            let mut config = defaults.map_err(|error| Failure::new(error.to_string()))?;
            config.socket = socket.unwrap_or(config.socket);
            (config, Some(error.to_string()))
        }
    };
    let subnets = [Some(&config.network.subnet), config.network.subnet6.as_ref()];
    let listeners =
        [("metrics.address", config.metrics.address), ("streaming.address", Some(config.streaming.address))];
    let fixed = |(key, address): (&'static str, Option<std::net::SocketAddr>)| Some((key, address?));
    Ok(Settings {
        monitor: monitor::find(config.monitor.as_deref()).map_err(|failure| failure.to_string()),
        socket: config.socket,
        state_dir: config.state_dir,
        data_dir: config.data_dir,
        cni_conf_dir: config.network.cni_conf_dir.clone(),
        cni_bin_dirs: config.network.cni_bin_dirs.clone(),
        bridge: config.network.bridge.clone(),
        subnets: subnets.into_iter().flatten().filter_map(|text| subnet(text)).collect(),
        // With port 0 the kernel selects a free one.
        listeners: listeners.into_iter().filter_map(fixed).filter(|(_, address)| address.port() != 0).collect(),
        cadvisor_socket: config.cadvisor.socket,
        // A running daemon reports the one that it uses.
        cgroup_driver: match config.cgroup.driver {
            CgroupDriver::Auto => doctor::CgroupDriver::Auto,
            CgroupDriver::Cgroupfs => doctor::CgroupDriver::Cgroupfs,
            CgroupDriver::Systemd => doctor::CgroupDriver::Systemd,
        },
        error,
    })
}

fn subnet(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}
