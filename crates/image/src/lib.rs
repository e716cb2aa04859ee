//! Images. (contract stub)
#![allow(missing_docs, unused_variables, dead_code)]
use std::{collections::BTreeMap, path::{Path, PathBuf}, sync::Arc};
use rustix::fd::OwnedFd;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind { NotFound, Invalid, Unauthorized, Unavailable, Corrupt, System }
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error { pub kind: ErrorKind, pub message: String }

/// `[registries]` of the configuration.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// containerd's `certs.d` layout, if any: later. Mirrors by registry host: base URLs tried in order before the host.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Hosts (host or host:port) that may be spoken to by plain HTTP; loopback always may.
    pub plain_http: Vec<String>,
    /// Registry for names without a host.
    pub default_registry: Option<String>, // docker.io
}
#[derive(Clone, Debug, Default)]
pub struct Credentials { pub username: String, pub password: String, pub identity_token: String, pub registry_token: String }

/// What a pull tells while it runs: one call per change, at most every 50 ms per layer.
#[derive(Clone, Debug)]
pub struct LayerProgress { pub digest: String, pub stage: Stage, pub done: u64, pub total: u64 }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage { Waiting, Downloading, Unpacking, Done, Exists }
pub type Progress = Arc<dyn Fn(LayerProgress) + Send + Sync>;

/// An image in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Image {
    /// `sha256:<config digest>`.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// Compressed layers + config, bytes.
    pub size: u64,
    pub config: ImageConfig,
    pub pinned: bool,
    /// The image's configuration as it is, for `inspect`.
    pub raw_config: Arc<serde_json::Value>,
}
#[derive(Clone, Debug, Default)]
pub struct ImageConfig {
    pub user: String, pub env: Vec<String>, pub entrypoint: Vec<String>, pub cmd: Vec<String>, pub working_dir: String,
    pub stop_signal: Option<String>, pub volumes: Vec<String>, pub labels: BTreeMap<String, String>, pub exposed_ports: Vec<String>,
    pub created: Option<String>, pub architecture: String, pub os: String,
}
/// Bytes and inodes of the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage { pub bytes: u64, pub inodes: u64 }

/// Images, layers and snapshots under one folder. Cheap to clone.
#[derive(Clone)]
pub struct Store {}
impl Store {
    /// Opens or makes it; after an unclean boot, layers that are listed are verified and bad ones dropped, alone.
    pub fn open(dir: &Path, registries: Registries) -> Result<Self, Error> { todo!() }
    pub fn root(&self) -> &Path { todo!() }
    /// Resolves, downloads, verifies, unpacks; several pulls of one image join. Returns the image.
    pub async fn pull(&self, reference: &str, credentials: Option<&Credentials>, progress: Option<Progress>) -> Result<Image, Error> { todo!() }
    /// By tag, digest reference, id, or unambiguous prefix of an id (≥ 6 hex digits). Names are normalized.
    pub fn find(&self, name: &str) -> Result<Option<Image>, Error> { todo!() }
    pub fn list(&self) -> Vec<Image> { todo!() }
    /// Removes an image by any of its names, with all of its tags; unknown names succeed. Layers in use stay until free.
    pub async fn remove(&self, name: &str) -> Result<(), Error> { todo!() }
    /// Docker archive or OCI layout (tar, maybe gzip or zstd), or OCI layout folder.
    pub async fn import(&self, archive: &mut (dyn tokio::io::AsyncRead + Send + Unpin)) -> Result<Vec<Image>, Error> { todo!() }
    /// A tar that is both OCI layout and docker archive (`docker save` since 25).
    pub async fn export(&self, names: &[String], out: &mut (dyn tokio::io::AsyncWrite + Send + Unpin)) -> Result<(), Error> { todo!() }
    pub fn usage(&self) -> Usage { todo!() }
    /// Makes the writable layer of a container; idempotent per key.
    pub fn prepare(&self, key: &str, image_id: &str) -> Result<(), Error> { todo!() }
    /// The snapshot as a detached overlay mount (`volatile`), never attached to this mount namespace.
    pub fn mount(&self, key: &str, readonly: bool) -> Result<OwnedFd, Error> { todo!() }
    /// Removes the writable layer; unknown keys succeed.
    pub fn discard(&self, key: &str) -> Result<(), Error> { todo!() }
    /// Writable layers that exist (for the reconciler).
    pub fn snapshots(&self) -> Vec<String> { todo!() }
    /// Bytes and inodes of one writable layer, sampled in the background.
    pub fn snapshot_usage(&self, key: &str) -> Usage { todo!() }
    pub fn upper(&self, key: &str) -> PathBuf { todo!() }
}
