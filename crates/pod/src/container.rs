//! Containers: a root file system, a process, resource limits and a log.
//!
//! ```text
//!               create               start              exit
//!   (nothing) ───────▶ Creating ─▶ Created ─▶ Starting ─▶ Running ─▶ Exited ─▶ remove ─▶ (nothing)
//!                         │           └── killed ──────────┴────────▶ Exited
//!                         └── on failure everything is rolled back
//! ```
//! `create` and `start` change the phase while they hold the lock `busy`. The exit of the process, an event of the
//! monitor, changes it at any time and takes no lock. If the program exits while the phase is `Starting`, `start`
//! records its own outcome first.

pub(crate) mod attach;
mod broken;
mod cause;
mod cdi_devices;
mod checkpoint;
mod config;
pub(crate) mod create;
mod declared_volumes;
pub(crate) mod exec;
pub(crate) mod exec_sync;
pub(crate) mod exit;
mod host_directory;
mod identity;
mod image_volume;
pub(crate) mod kill;
pub(crate) mod log_file;
mod object;
pub(crate) mod preopened_files;
pub(crate) mod prepare;
pub(crate) mod remove;
pub(crate) mod reopen_log;
mod selinux;
mod spec;
pub(crate) mod start;
mod status;
pub(crate) mod stdio;
pub(crate) mod stop;
pub(crate) mod update;
pub(crate) mod volume;

pub(crate) use broken::broken;
pub use cause::{Cause, START_ERROR};
pub use config::{
    ContainerConfig, DeviceMapping, GroupsPolicy, ImageVolume, Propagation, SeccompChoice, Security, UserChoice, Volume,
};
pub(crate) use object::{Container, ContainerMetadata, ContainerPhase, ContainerRecord, SPEC};
pub(crate) use spec::apparmor;
pub use status::{ContainerState, ContainerStatus, ExecOutput, ExecRequest};
