//! Where overlays that people create are kept: the cluster, and the part of a list that all of them have.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use overlay::{EtcdSettings, Settings, Source};
use serde_json::{Value, json};

use super::pools::Pools;
use crate::{Error, OverlayConfig};

/// The checked configuration of overlays.
#[derive(Clone, Debug)]
pub(crate) struct OverlayStore {
    pub(crate) etcd: EtcdSettings,
    pub(crate) pools: Pools,
    /// Directory of the records of agents.
    pub(crate) state_directory: PathBuf,
    /// Address of this node, if it is configured.
    pub(crate) node: Option<IpAddr>,
    /// The member `etcd` of a plugin.
    pub(super) section: Value,
}

impl OverlayStore {
    /// Checks a configuration; `None` if it has no endpoint.
    pub(crate) fn parse(config: &OverlayConfig, state_dir: &Path) -> Result<Option<Self>, Error> {
        if config.endpoints.is_empty() {
            return Ok(None);
        }
        let mut section = json!({"endpoints": config.endpoints, "prefix": config.prefix});
        let files = [
            ("caFile", &config.ca_file),
            ("certFile", &config.cert_file),
            ("keyFile", &config.key_file),
            ("passwordFile", &config.password_file),
        ];
        for (key, file) in files {
            if let Some(file) = file {
                section[key] = json!(file);
            }
        }
        if let Some(username) = &config.username {
            section["username"] = json!(username);
        }
        let wrong = |reason: String| Error::config("network.overlay", reason);
        // The plugin is what reads the section, so it is what checks it; the network stands for any.
        let plugin = json!({"name": "any", "vni": 1, "network": "10.0.0.0/16", "etcd": section});
        let settings = Settings::parse(plugin.as_object().unwrap_or(&serde_json::Map::new()));
        let Source::Etcd(etcd) = settings.map_err(|error| wrong(error.to_string()))?.source else {
            return Err(wrong("has no etcd".into()));
        };
        Ok(Some(Self {
            etcd,
            pools: Pools::parse(&config.address_pools)?,
            state_directory: state_dir.join("overlay"),
            node: config.node,
            section,
        }))
    }
}
