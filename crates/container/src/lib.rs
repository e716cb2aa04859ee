//! An OCI spec and descriptors in, a process out.
//!
//! A container's way, each step a type that the next consumes:
//!
//! ```text
//! Spec + Inputs ──Plan::new──▶ Plan ──create──▶ Nascent ──advance──▶ Ready ──start──▶ Executed
//!    checked whole, nothing changed     cgroup, clone3    set up, waits        execve, nothing else
//! ```
//!
//! - [`Plan::new`] is the edge: whatever is wrong with a spec is told there, naming the property, and nothing was
//!   changed.
//! - [`create`] makes the cgroup and clones. The child sets itself up (`init.rs` reads as the list of steps) and waits
//!   on a socket (`sync.rs` draws what is said); the parent goes on at once and is told by a readable descriptor.
//! - [`exec`] puts a command into a running container the same way: a fork that joins the namespaces by pidfd.
//!
//! Who calls must have one thread, because the child is a copy of the caller: the kernel is asked, and refuses
//! otherwise. The fewer mounts the caller's mount namespace has, the faster; it needs a procfs on `/proc`.
//!
//! # What is absent on purpose
//! No path of a container is ever followed outside of its root: mounts are made detached first, then the root is
//! entered, and only then is anything attached. Nothing is written through the container's `/proc`. No helper program
//! is started. No state is kept: what a caller must remember is in [`Nascent`].
//!
//! # Source
//! OCI runtime specification 1.3, `config.md` and `config-linux.md`; one property, one file.

#![forbid(unsafe_code)]

mod capabilities;
mod command;
mod create;
mod credentials;
mod descriptors;
mod destination;
mod devices;
mod environment;
mod error;
mod exec;
mod filter;
mod forerunner;
mod gathered;
mod home;
pub mod hooks;
mod host_names;
mod id_mappings;
mod init;
mod inputs;
pub mod intel_rdt;
mod labels;
mod masks;
mod memory_policy;
pub mod mount_point;
mod mounts;
mod namespaces;
mod nascent;
mod net_devices;
mod notify;
mod oom;
pub mod own_program;
mod owned_namespaces;
mod placement;
mod plan;
mod process;
mod procfs;
mod rights;
mod rlimits;
mod rootfs;
mod route_netlink;
mod scheduling;
pub mod staging;
mod standard;
mod start;
mod sync;
mod sysctl;
mod terminal;
mod text;
mod time_offsets;
mod user_namespace;

pub use create::create;
pub use error::{Error, ErrorKind};
pub use exec::{Target, exec};
pub use filter::ExecFilter;
pub use inputs::{Inputs, Invocation, Rootfs, Stdio};
pub use nascent::{Nascent, Progress};
pub use notify::Agent;
pub use owned_namespaces::{MadeNamespaces, Making, OwnedNamespaces};
pub use plan::Plan;
pub use rootfs::detach_root;
pub use start::start_waiting;

/// Every mount option that is taken without a look at the file system, sorted.
pub fn mount_options() -> Vec<String> {
    mounts::option::known()
}

/// Modes and flags of `linux.memoryPolicy` that are known.
pub fn memory_policy_words() -> [Vec<&'static str>; 2] {
    let names = |table: &[(&'static str, i32)]| table.iter().map(|(name, _)| *name).collect();
    [names(&memory_policy::MODES), names(&memory_policy::FLAGS)]
}
