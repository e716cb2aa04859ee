//! The engine: sandboxes, containers, state, recovery. Knows no protobuf. (contract stub: types are agreed; bodies and
//! file layout are the owner's; add fields where the CRI has them, keep names in the field's terms)
#![allow(missing_docs, unused_variables, dead_code)]
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

pub use image::{Credentials, Error as ImageError, ErrorKind as ImageErrorKind, Image, ImageConfig, LayerProgress, Progress, Registries, Stage, Store, Usage};
pub use network::{Config as NetworkConfig, PortMapping, Protocol};
pub use oci;

/// Maps to a gRPC code in `cri`, to an exit code in the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind { NotFound, AlreadyExists, InvalidArgument, FailedPrecondition, DeadlineExceeded, ResourceExhausted, Unavailable, Unimplemented, Internal }
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error { pub kind: ErrorKind, pub message: String }

/// The daemon's configuration below the command line, already checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub state_dir: PathBuf,          // /run/pinion (tmpfs; mounted by the daemon where /run is none)
    pub data_dir: PathBuf,           // /var/lib/pinion
    pub monitor: PathBuf,            // the pinmon program
    pub netns_dir: PathBuf,          // /run/netns
    pub default_cgroup_parent: String, // "/pinion"
    pub registries: Registries,
    pub network: network::Config,
    pub netns_pool: usize,
    pub default_runtime_handler: String, // ""
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum PidMode { Pod, Container, Node, }
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum SharedMode { Pod, Node }

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Name { pub name: String, pub uid: String, pub namespace: String, pub attempt: u32 }

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Dns { pub servers: Vec<String>, pub searches: Vec<String>, pub options: Vec<String> }

/// `RunPodSandbox`'s config, valid.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SandboxConfig {
    pub name: Name,
    pub hostname: String,
    pub log_directory: Option<PathBuf>,
    pub dns: Option<Dns>,
    #[serde(with = "ports")] pub ports: Vec<PortMapping>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cgroup_parent: Option<String>,
    pub sysctls: BTreeMap<String, String>,
    pub network: SharedMode,
    pub ipc: SharedMode,
    pub pid: PidMode,
    pub privileged: bool,
    pub runtime_handler: String,
    pub resources: Option<oci::Resources>,
}
mod ports { /* serde of PortMapping as the owner likes; or derive it in `network` */
    use super::PortMapping;
    pub(crate) fn serialize<S: serde::Serializer>(_: &[PortMapping], s: S) -> Result<S::Ok, S::Error> { s.serialize_unit() }
    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(_: D) -> Result<Vec<PortMapping>, D::Error> { Ok(Vec::new()) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SandboxState { Ready, NotReady }
#[derive(Clone, Debug)]
pub struct SandboxStatus {
    pub id: String, pub config: Arc<SandboxConfig>, pub state: SandboxState, pub created_at: u64,
    pub ips: Vec<std::net::IpAddr>, pub netns: Option<PathBuf>,
    /// Where a running or failed operation stands, for `inspect`.
    pub stage: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Propagation { Private, HostToContainer, Bidirectional }
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Volume { pub container_path: String, pub host_path: PathBuf, pub readonly: bool, pub recursive_readonly: bool, pub propagation: Propagation, pub selinux_relabel: bool }
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct DeviceMapping { pub container_path: String, pub host_path: PathBuf, pub permissions: String }
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SeccompChoice { RuntimeDefault, Unconfined, Localhost(PathBuf) }
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum UserChoice { Image, Uid { uid: i64, gid: Option<i64> }, Name(String) }
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum GroupsPolicy { Merge, Strict }

/// `LinuxContainerSecurityContext`, valid.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Security {
    pub user: UserChoice, pub supplemental_groups: Vec<i64>, pub groups_policy: GroupsPolicy,
    pub privileged: bool, pub readonly_rootfs: bool, pub no_new_privileges: bool,
    pub add_capabilities: Vec<String>, pub drop_capabilities: Vec<String>, pub add_ambient_capabilities: Vec<String>,
    pub seccomp: SeccompChoice, pub apparmor: Option<String>, pub selinux_label: Option<String>,
    pub masked_paths: Vec<String>, pub readonly_paths: Vec<String>,
    pub pid: PidMode, /// Container whose PID namespace is joined (`TARGET`).
    pub target: Option<String>,
}
/// `CreateContainer`'s config, valid.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ContainerConfig {
    pub name: String, pub attempt: u32,
    pub image: String, /// What the user wrote, for status.
    pub user_specified_image: String,
    pub command: Vec<String>, pub args: Vec<String>, pub working_dir: Option<String>, pub env: Vec<(String, String)>,
    pub volumes: Vec<Volume>, pub devices: Vec<DeviceMapping>,
    pub labels: BTreeMap<String, String>, pub annotations: BTreeMap<String, String>,
    pub log_path: Option<PathBuf>, // relative to the sandbox's log_directory
    pub stdin: bool, pub stdin_once: bool, pub tty: bool,
    pub resources: oci::Resources, pub oom_score_adj: i32,
    pub security: Security, pub stop_signal: Option<i32>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ContainerState { Created, Running, Exited, Unknown }
#[derive(Clone, Debug)]
pub struct ContainerStatus {
    pub id: String, pub sandbox: String, pub config: Arc<ContainerConfig>, pub image_id: String, pub state: ContainerState,
    pub created_at: u64, pub started_at: u64, pub finished_at: u64, pub exit_code: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, …
    pub reason: String, pub message: String, pub log_path: Option<PathBuf>, pub pid: Option<u32>,
    pub user: oci::User, pub stage: String,
}
#[derive(Clone, Debug, Default)]
pub struct ContainerStats { pub id: String, pub at: u64, pub cgroup: cgroup::Stats, pub writable_layer: Usage }
#[derive(Clone, Debug)]
pub struct ExecOutput { pub stdout: Vec<u8>, pub stderr: Vec<u8>, pub exit_code: i32 }
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Added to (or in place of) the container's.
    pub env: Vec<(String, String)>,
    /// `None`: the container's.
    pub working_dir: Option<String>,
    /// `UserChoice::Image`: the container's own user.
    pub user: UserChoice,
    pub command: Vec<String>, pub tty: bool, pub stdin: bool, pub stdout: bool, pub stderr: bool, pub size: Option<(u16, u16)> }
/// Streams of a command or an attached container; dropping it ends a command's session, not the container.
pub struct Session {
    pub stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    pub stdout: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    pub stderr: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    pub control: SessionControl,
}
#[derive(Clone)]
pub struct SessionControl {}
impl SessionControl {
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> { todo!() }
    /// Exit code of the command (or of the attached container).
    pub async fn wait(&self) -> Result<i32, Error> { todo!() }
}
#[derive(Clone, Debug)]
pub struct Condition { pub ready: bool, pub reason: String, pub message: String }
#[derive(Clone, Debug)]
pub struct EngineStatus { pub runtime: Condition, pub network: Condition, pub handlers: Vec<String>, pub info: BTreeMap<String, serde_json::Value> }

/// Cheap to clone.
#[derive(Clone)]
pub struct Engine {}
impl Engine {
    /// Recovers what runs, starts or finds the monitor, reconciles the ledger, then serves.
    pub async fn open(config: Config) -> Result<Self, Error> { todo!() }
    pub async fn status(&self) -> EngineStatus { todo!() }
    pub fn images(&self) -> &image::Store { todo!() }

    pub async fn run_sandbox(&self, config: SandboxConfig) -> Result<String, Error> { todo!() }
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> { todo!() }
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> { todo!() }
    /// By id or unambiguous prefix.
    pub fn sandbox(&self, id: &str) -> Result<SandboxStatus, Error> { todo!() }
    pub fn sandboxes(&self) -> Vec<SandboxStatus> { todo!() }

    pub async fn create_container(&self, sandbox: &str, config: ContainerConfig) -> Result<String, Error> { todo!() }
    pub async fn start_container(&self, id: &str) -> Result<(), Error> { todo!() }
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> { todo!() }
    /// Sends a signal (1 to 64) to the first process, or to every process.
    pub async fn kill_container(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> { todo!() }
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> { todo!() }
    pub fn container(&self, id: &str) -> Result<ContainerStatus, Error> { todo!() }
    pub fn containers(&self) -> Vec<ContainerStatus> { todo!() }
    pub async fn reopen_log(&self, id: &str) -> Result<(), Error> { todo!() }
    pub async fn update_container(&self, id: &str, resources: oci::Resources) -> Result<(), Error> { todo!() }

    /// `timeout` zero: none. Output bounded (16 MiB each); at the deadline the whole tree is killed, then DeadlineExceeded.
    pub async fn exec_sync(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<ExecOutput, Error> { todo!() }
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session, Error> { todo!() }
    pub async fn attach(&self, id: &str, request: ExecRequest) -> Result<Session, Error> { todo!() }
    /// Resolves when the container ended.
    pub async fn wait(&self, id: &str) -> Result<Option<i32>, Error> { todo!() }

    pub fn container_stats(&self, id: &str) -> Result<ContainerStats, Error> { todo!() }
    /// One stale row is left out, never a failed list.
    pub fn all_container_stats(&self) -> Vec<ContainerStats> { todo!() }

    /// Everything known, for `inspect -v`.
    pub fn inspect_sandbox(&self, id: &str) -> Result<serde_json::Value, Error> { todo!() }
    pub fn inspect_container(&self, id: &str) -> Result<serde_json::Value, Error> { todo!() }
}
