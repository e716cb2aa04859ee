//! The OCI runtime specification (1.3, Linux) as plain serde types.
//!
//! These are the words of `config.json`, not validated: `container` turns them into a valid plan once, at its edge.
//! Unknown fields are ignored, as the specification asks of runtimes. Fields that are absent are `None` or empty and
//! are not written back. What others wrote is read by [`from_json`].

#![forbid(unsafe_code)]

mod capability;
mod conventional;
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
pub use conventional::{DEFAULT_CAPABILITIES, DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};
pub use json::{JsonError, from_json};
pub use linux::{
    Device, DeviceKind, IdMapping, IntelRdt, Linux, MemoryPolicy, Namespace, NamespaceType, NetDevice, Personality,
    TimeOffset,
};
pub use mount::Mount;
pub use process::{Capabilities, ConsoleSize, ExecCpuAffinity, IoPriority, Process, Rlimit, Scheduler, User};
pub use resources::{
    BlockIo, Cpu, DeviceRule, HugepageLimit, Memory, Network, NetworkPriority, Pids, Rdma, Resources, ThrottleDevice,
    WeightDevice,
};
pub use seccomp::{Seccomp, SeccompArg, SyscallRule};
pub use spec::{Hook, Hooks, Root, Spec};
pub use state::{State, Status};
