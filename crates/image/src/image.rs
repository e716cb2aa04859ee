//! An image as its users see it.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use crate::{Digest, Error};

/// An image in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Image {
    /// `sha256:<config digest>`.
    pub id: String,
    /// `host/repository:tag`, as asked for, whatever mirror it came from.
    pub repo_tags: Vec<String>,
    /// `host/repository@digest`, likewise.
    pub repo_digests: Vec<String>,
    /// Compressed layers, manifest and config, bytes.
    pub size: u64,
    /// How to run it.
    pub config: Arc<ImageConfig>,
    /// Never collected by the kubelet.
    pub pinned: bool,
    /// The image's configuration as it is, for `inspect`.
    pub raw_config: Arc<serde_json::Value>,
}

/// The part of an image's configuration that decides how it runs (OCI image spec, config).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// `user`, `uid`, `user:group` or `uid:gid`; empty: root.
    pub user: String,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Goes before the command.
    pub entrypoint: Vec<String>,
    /// The command where the user gives none.
    pub cmd: Vec<String>,
    /// Empty: `/`.
    pub working_dir: String,
    /// `SIGTERM`, `15`, …
    pub stop_signal: Option<String>,
    /// Paths that the image wants as volumes.
    pub volumes: Vec<String>,
    /// Free text; never control data.
    pub labels: BTreeMap<String, String>,
    /// `80/tcp`.
    pub exposed_ports: Vec<String>,
    /// RFC 3339.
    pub created: Option<String>,
    /// `amd64`, …; empty if the image does not say.
    pub architecture: String,
    /// `linux`; empty if the image does not say.
    pub os: String,
    /// `v8`, …; empty if the image does not say.
    pub variant: String,
}

/// Bytes and inodes of something on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Allocated bytes.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// A parsed configuration blob.
pub(crate) struct Parsed {
    pub(crate) config: ImageConfig,
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) raw: serde_json::Value,
}

#[derive(Deserialize)]
struct Blob {
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: String,
    #[serde(default)]
    config: Option<Run>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Run {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    volumes: Option<BTreeMap<String, serde_json::Value>>,
    labels: Option<BTreeMap<String, String>>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

/// Parses a configuration blob.
pub(crate) fn parse_config(bytes: &[u8]) -> Result<Parsed, Error> {
    let not_one = |error: serde_json::Error| Error::invalid(format!("image configuration is not valid: {error}"));
    let raw: serde_json::Value = serde_json::from_slice(bytes).map_err(not_one)?;
    let blob = Blob::deserialize(&raw).map_err(not_one)?;
    let run = blob.config.unwrap_or_default();
    let keys = |map: Option<BTreeMap<String, serde_json::Value>>| map.unwrap_or_default().into_keys().collect();
    let config = ImageConfig {
        user: run.user.unwrap_or_default(),
        env: run.env.unwrap_or_default(),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        working_dir: run.working_dir.unwrap_or_default(),
        stop_signal: run.stop_signal.filter(|signal| !signal.is_empty()),
        volumes: keys(run.volumes),
        labels: run.labels.unwrap_or_default(),
        exposed_ports: keys(run.exposed_ports),
        created: blob.created,
        architecture: blob.architecture,
        os: blob.os,
        variant: blob.variant,
    };
    Ok(Parsed { config, diff_ids: blob.rootfs.diff_ids, raw })
}
