//! Creates containers: takes an OCI spec and descriptors, and returns a process.
//!
//! The steps of a creation, each a type that the next one consumes:
//!
//! ```text
//! Spec + Inputs ──Plan::new──▶ Plan ──create──▶ ContainerSetup ──advance──▶ Ready ──start──▶ Executed
//!               validation only     cgroup, clone3             setup, then wait   execve only
//! ```
//!
//! - [`Plan::new`] validates: every error in a spec is reported there, naming the property, before anything is changed.
//! - [`create`] makes the cgroup and clones. The child sets itself up (`init.rs` reads as the list of steps) and waits
//!   on a socket (`sync.rs` documents the protocol). The parent continues immediately, and is notified by a readable
//!   descriptor.
//! - [`exec`] executes a process in a running container the same way: a fork that joins the namespaces by pidfd.
//!
//! The caller must be single-threaded, because the child is a copy of it; otherwise the clone fails. Creation is faster
//! the fewer mounts the caller's mount namespace has. The caller needs a procfs on `/proc`.
//!
//! # What is absent on purpose
//! No path of a container is ever resolved outside of its root: mounts are made detached first, then the root is
//! entered, and only then is anything attached. Nothing is written through the container's `/proc`. No helper program
//! is started, except `newuidmap` and `newgidmap` for unprivileged callers. No state is stored: everything that a
//! caller must remember is in [`ContainerSetup`].
//!
//! # Source
//! OCI runtime specification 1.3, `config.md` and `config-linux.md`; one property, one file.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod capabilities;
mod create;
mod credentials;
mod descriptors;
mod destination;
mod devices;
mod environment;
mod error;
mod exec;
mod filter;
mod home;
pub mod hooks;
mod host_names;
mod id_mappings;
mod init;
mod inputs;
pub mod intel_rdt;
mod intermediate;
mod interpreter;
mod labels;
mod masks;
mod memory_policy;
pub mod mount_point;
mod mount_tree;
mod mounts;
mod namespaces;
mod net_devices;
mod notify;
mod oom;
mod path_lookup;
mod placement;
mod plan;
mod pod_namespaces;
mod preopened;
mod privileges;
mod process;
mod procfs;
mod rlimits;
mod rootfs;
mod route_netlink;
mod scheduling;
pub mod self_exe;
mod setup;
mod spec_string;
pub mod staging;
mod start;
mod stdio;
mod sync;
mod sysctl;
mod terminal;
mod time_offsets;
mod user_namespace;

pub use create::create;
pub use error::{Error, ErrorKind};
pub use exec::{Target, exec};
pub use filter::ExecFilter;
pub use inputs::{Inputs, Invocation, Rootfs, Stdio};
pub use interpreter::Interpreter;
pub use notify::SeccompAgent;
pub use plan::Plan;
pub use pod_namespaces::{PodNamespaceRequest, PodNamespaceSetup, PodNamespaces};
pub use rootfs::detach_root;
pub use setup::{ContainerSetup, Progress};
pub use start::start_created;

/// Returns every mount option that is accepted regardless of the file system, sorted.
pub fn mount_options() -> Vec<String> {
    mounts::option::known()
}

/// Returns the supported modes and flags of `linux.memoryPolicy`.
pub fn memory_policy_names() -> [Vec<&'static str>; 2] {
    let names = |table: &[(&'static str, i32)]| table.iter().map(|(name, _)| *name).collect();
    [names(&memory_policy::MODES), names(&memory_policy::FLAGS)]
}
