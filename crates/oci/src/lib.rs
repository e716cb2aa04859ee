//! The OCI runtime specification (1.3, Linux) as plain serde types.
//!
//! The types represent `config.json` without validation; `container` converts them to a validated plan. Unknown fields
//! are ignored, as the specification requires of runtimes. Absent fields are `None` or empty and are not serialized.
//! Parse the output of other programs with [`from_json`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod capability;
mod defaults;
mod features;
mod json;
mod json_path;
mod linux;
mod mount;
mod process;
mod resources;
mod seccomp;
mod spec;
mod state;

pub use capability::CAPABILITIES;
pub use defaults::{DEFAULT_CAPABILITIES, DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};
pub use features::{CgroupFeatures, FeatureSwitch, Features, LinuxFeatures, MountExtensions};
pub use json::{JsonError, JsonErrorKind, from_json};
pub use linux::{
    Device, DeviceKind, IdMapping, IntelRdt, Linux, MemoryPolicy, Namespace, NamespaceType, NetDevice, Personality,
    TimeOffset,
};
pub use mount::Mount;
pub use process::{Capabilities, ExecCpuAffinity, IoPriority, Process, Rlimit, Scheduler, TerminalSize, User};
pub use resources::{
    BlockIo, Cpu, DeviceRule, HugepageLimit, Memory, Network, NetworkPriority, Pids, Rdma, Resources, ThrottleDevice,
    WeightDevice,
};
pub use seccomp::{Seccomp, SeccompArg, SyscallRule};
pub use spec::{Hook, Hooks, Root, Spec};
pub use state::{State, Status};
