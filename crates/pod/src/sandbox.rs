//! Pods: the resources that containers share.
//!
//! ```text
//!            run                                        stop            remove
//! (nothing) ────▶ Reserved ──▶ Networked ──▶ Ready ──────────▶ Stopped ──────▶ (nothing)
//!                    └─────────────┴── on failure: teardown, then (nothing)
//! ```
//! The resources of a pod exist without a process: the network namespace is pinned; the IPC and UTS namespaces,
//! `/dev/shm` and the files of `/etc` are kept as descriptors, here and in the monitor. Only a pod with a shared PID
//! namespace has a process, its init, and only once a container needs it.

mod broken;
mod config;
mod files;
mod leftover_init;
mod namespaces;
mod object;
mod port_forward;
pub(crate) mod remove;
pub(crate) mod run;
mod status;
pub(crate) mod stop;
pub(crate) mod teardown;
mod update;

pub(crate) use broken::{broken, broken_status};
pub use config::{Dns, Name, PidMode, SandboxConfig, SharedMode};
pub(crate) use files::{FILES, SHARED_FILES, make as make_files, write as write_files};
#[cfg(test)]
pub(crate) use namespaces::make_shm;
pub(crate) use namespaces::{
    KINDS, OwnedNamespaces, SHM, SharedResource, derive, forget_ended_init, has_lost_init, id_map, id_map_of,
    make_owned, make_shared, pid_namespace,
};
pub(crate) use object::{Sandbox, SandboxMetadata, SandboxPhase, SandboxRecord};
pub use status::{SandboxState, SandboxStatus};
pub(crate) use update::limits as pod_limits;
