//! Images and their configuration.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use crate::{Digest, Error, MODULE_PATH, Platform};

/// Largest image configuration, in bytes.
pub(crate) const CONFIG_MAX: u64 = 8 * 1024 * 1024;

/// An image in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Image {
    /// The id: `sha256:<config digest>`.
    pub id: String,
    /// Tags as `host/repository:tag`, with the host that was requested, not that of a mirror.
    pub repo_tags: Vec<String>,
    /// Digests as `host/repository@digest`, likewise with the requested host.
    pub repo_digests: Vec<String>,
    /// Size of the compressed layers, manifest and configuration, in bytes.
    pub size: u64,
    /// The part of the configuration that decides how the image runs.
    pub config: Arc<ImageConfig>,
    /// Annotations of the manifest that decide what runs the image: [`crate::ANNOTATION_VARIANT`],
    /// [`crate::ANNOTATION_HANDLER`].
    pub annotations: BTreeMap<String, String>,
    /// Whether the kubelet never removes the image.
    pub pinned: bool,
    /// The complete configuration, for `inspect`.
    pub raw_config: Arc<serde_json::Value>,
}

/// The part of an image's configuration that decides how it runs (OCI image spec, config).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// User: `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    pub user: String,
    /// Environment, as `NAME=value`.
    pub env: Vec<String>,
    /// Program and arguments that precede the command.
    pub entrypoint: Vec<String>,
    /// Default command.
    pub cmd: Vec<String>,
    /// Working directory; empty means `/`.
    pub working_dir: String,
    /// Signal that stops the container: `SIGTERM`, `15`, …
    pub stop_signal: Option<String>,
    /// Paths that the image declares as volumes.
    pub volumes: Vec<String>,
    /// Labels: free text, never control data.
    pub labels: BTreeMap<String, String>,
    /// Ports, as `80/tcp`.
    pub exposed_ports: Vec<String>,
    /// Time of creation (RFC 3339).
    pub created: Option<String>,
    /// Architecture: `amd64`, …; empty if the image does not state it.
    pub architecture: String,
    /// Operating system: `linux`; empty if the image does not state it.
    pub os: String,
    /// Variant of the architecture: `v8`, …; empty if the image does not state it.
    pub variant: String,
}

impl ImageConfig {
    /// Whether the image is for a WebAssembly runtime and not for an operating system.
    #[must_use]
    pub fn is_wasm(&self) -> bool {
        self.platform().is_wasm()
    }

    /// Returns the platform that the image states.
    pub(crate) fn platform(&self) -> Platform {
        Platform { architecture: self.architecture.clone(), os: self.os.clone(), variant: self.variant.clone() }
    }
}

/// Disk usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of files, directories and links.
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// A parsed configuration blob.
pub(crate) struct ParsedConfig {
    pub(crate) config: ImageConfig,
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) raw: serde_json::Value,
}

#[derive(Deserialize)]
struct ConfigBlob {
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: String,
    #[serde(default)]
    config: Option<RunConfig>,
    rootfs: Option<RootFs>,
    /// The layers of an artifact that is a WebAssembly module, which has no `rootfs`.
    #[serde(default, rename = "layerDigests")]
    layer_digests: Vec<Digest>,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RunConfig {
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

/// Parses and validates a configuration blob.
pub(crate) fn parse_config(bytes: &[u8]) -> Result<ParsedConfig, Error> {
    let invalid = |error: serde_json::Error| Error::invalid(format!("image configuration is not valid: {error}"));
    let raw: serde_json::Value = serde_json::from_slice(bytes).map_err(invalid)?;
    let blob = ConfigBlob::deserialize(&raw).map_err(invalid)?;
    let run = blob.config.unwrap_or_default();
    // Without its layers, artifacts with the same metadata would be the same image.
    let (diff_ids, module) = match (blob.rootfs, blob.layer_digests) {
        (Some(rootfs), _) => (rootfs.diff_ids, None),
        (None, layers) if layers.len() == 1 => (layers, Some(MODULE_PATH.to_owned())),
        (None, _) => {
            return Err(Error::invalid(
                "image configuration is not valid: it names neither rootfs nor one layerDigests",
            ));
        }
    };
    let keys = |map: Option<BTreeMap<String, serde_json::Value>>| map.unwrap_or_default().into_keys().collect();
    let config = ImageConfig {
        user: run.user.unwrap_or_default(),
        env: run.env.unwrap_or_default(),
        entrypoint: module.map(|path| vec![path]).or(run.entrypoint).unwrap_or_default(),
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
    Ok(ParsedConfig { config, diff_ids, raw })
}
