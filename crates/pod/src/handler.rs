//! Runtime handlers that an administrator configures.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A runtime handler whose containers a program with the command line of runc creates, starts and deletes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OciHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of the program.
    pub binary: PathBuf,
    /// Global options of the program, before its command.
    pub arguments: Vec<String>,
    /// Directory of its state (`--root`). `None`: `runtime/<name>` in the state directory.
    pub root: Option<PathBuf>,
    /// Environment of its commands in addition to `PATH`, as `NAME=value`.
    pub environment: Vec<String>,
    /// Time limit of one command.
    pub timeout: Duration,
    /// Annotations of pods and containers that the runtime gets: whole names, or prefixes that end with `*`.
    pub allowed_annotations: Vec<String>,
    /// Annotations of all containers. Those of pods and containers, as far as they are allowed, replace them.
    pub default_annotations: BTreeMap<String, String>,
    /// Devices of privileged containers.
    pub privileged_devices: PrivilegedDevices,
    /// Specification whose properties containers get if the request does not determine them.
    pub base_spec: Option<Arc<oci::Spec>>,
}

impl OciHandler {
    /// Returns the directory of its state, on a node with this state directory.
    pub(crate) fn root(&self, state_dir: &Path) -> PathBuf {
        self.root.clone().unwrap_or_else(|| state_dir.join("runtime").join(&self.name))
    }
}

/// Devices of privileged containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivilegedDevices {
    /// All devices of the node.
    #[default]
    All,
    /// Those that the container requests, as for a container that is not privileged; it may create and use any other.
    Allowed,
    /// Those that the container requests, as for a container that is not privileged.
    Requested,
}

/// What an OCI runtime reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFacts {
    /// Name and version, as `runc 1.2.3`; empty if it reports none.
    pub version: String,
    /// Its features; `None` if it reports none, because it is older than the command `features`.
    pub features: Option<RuntimeFeatures>,
    /// Why it cannot run pods, and the remedy, if it is too old.
    pub too_old: Option<String>,
}

/// Features of an OCI runtime. `None`: it does not report whether it has the feature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFeatures {
    /// It can join the user namespace of a pod.
    pub user_namespaces: bool,
    /// It can make mounts read-only recursively (`rro`).
    pub recursive_readonly_mounts: bool,
    /// It can make id-mapped mounts.
    pub id_mapped_mounts: bool,
    /// It applies seccomp profiles.
    pub seccomp: Option<bool>,
    /// It applies AppArmor profiles.
    pub apparmor: Option<bool>,
    /// It applies SELinux labels.
    pub selinux: Option<bool>,
    /// It manages cgroups of version 1.
    pub cgroup_v1: Option<bool>,
    /// It manages cgroups of version 2.
    pub cgroup_v2: Option<bool>,
    /// It manages cgroups through systemd.
    pub systemd: Option<bool>,
    /// It can checkpoint and restore containers.
    pub checkpoint: bool,
}

impl RuntimeFeatures {
    /// Returns all features with their names, as programs read them.
    pub fn list(&self) -> [(&'static str, Option<bool>); 10] {
        [
            ("userNamespaces", Some(self.user_namespaces)),
            ("recursiveReadOnlyMounts", Some(self.recursive_readonly_mounts)),
            ("idMappedMounts", Some(self.id_mapped_mounts)),
            ("seccomp", self.seccomp),
            ("apparmor", self.apparmor),
            ("selinux", self.selinux),
            ("cgroupV1", self.cgroup_v1),
            ("cgroupV2", self.cgroup_v2),
            ("systemdCgroups", self.systemd),
            ("checkpoint", Some(self.checkpoint)),
        ]
    }
}

/// A runtime handler whose containers a containerd shim runs (shim API version 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShimHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of the shim, or its name as in containerd's configuration: `io.containerd.runc.v2` is
    /// `containerd-shim-runc-v2` in `PATH`.
    pub binary: PathBuf,
    /// Options that it gets. `None`: none.
    pub options: Option<shim::Options>,
    /// Environment of its commands in addition to `PATH`, as `NAME=value`.
    pub environment: Vec<String>,
    /// Time limit of a command and of a request.
    pub timeout: Duration,
    /// Annotations of pods and containers that it gets: whole names, or prefixes that end with `*`.
    pub allowed_annotations: Vec<String>,
    /// Whether the sandbox of a pod is a container of its own, in which the others run (gVisor, Kata).
    pub sandbox_container: bool,
}

/// The runtime handler whose containers are WebAssembly modules, which `pinion-wasm` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WasmHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of `pinion-wasm`.
    pub binary: PathBuf,
    /// Directory of compiled code. `None`: `wasm` in the data directory.
    pub cache: Option<PathBuf>,
    /// Maximum size of the compiled code of all modules, in bytes.
    pub cache_size_max: u64,
    /// Maximum size of a module, in bytes.
    pub size_max: u64,
    /// Maximum memory of a compilation, in bytes.
    pub compile_memory_max: u64,
    /// Time limit of a compilation, of its CPU time, too.
    pub compile_timeout: Duration,
    /// Annotations of pods and containers that are considered: whole names, or prefixes that end with `*`.
    pub allowed_annotations: Vec<String>,
}

impl WasmHandler {
    /// Whether this annotation of a pod or container is considered.
    pub(crate) fn allows(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        self.allowed_annotations.iter().any(matches)
    }
}

/// A runtime handler whose pods are virtual machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of QEMU's program for this architecture.
    pub hypervisor: PathBuf,
    /// Absolute path of virtiofsd.
    pub file_server: PathBuf,
    /// Directory of the image that guests boot. `None`: `vm` in the data directory.
    pub image: Option<PathBuf>,
    /// Memory that a guest boots with, in bytes, for its kernel, the agent and containers without a limit.
    pub memory: u64,
    /// Memory that a guest can have, in bytes. `None`: that of the node.
    pub memory_max: Option<u64>,
    /// Processors that a guest boots with.
    pub cpus: u32,
    /// Processors that a guest can have. `None`: those of the node, but not so many that they take much of `memory`.
    pub cpus_max: Option<u32>,
    /// Whether guests are emulated in software where KVM cannot run them.
    pub allow_emulation: bool,
    /// Whether guests begin from the saved state of one that has booted.
    pub template: bool,
    /// How long the agent in a guest may take to answer.
    pub boot_timeout: Duration,
    /// Time limit of a request to it.
    pub timeout: Duration,
    /// How long a guest may stay silent before its pod is stopped.
    pub silence_timeout: Duration,
}
