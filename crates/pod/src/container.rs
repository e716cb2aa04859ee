//! Containers: a root, a process, its limits, its log.
//!
//! ```text
//!            create               start              ends
//! (nothing) ───────▶ Creating ─▶ Created ─▶ Starting ─▶ Running ─▶ Exited ─▶ remove ─▶ (nothing)
//!                       │           └── killed ──────────┴────────▶ Exited
//!                       └── a failure: all is taken back
//! ```
//! Who moves it: `create` and `start` under the lock `busy`; the end of its process (an event of the monitor) at any
//! time, under no lock. A program that ends while it is `Starting` waits for `start` to say how that went.

pub(crate) mod attach;
mod broken;
mod cdi_devices;
mod checkpoint;
mod config;
pub(crate) mod create;
mod declared;
pub(crate) mod end;
pub(crate) mod exec;
pub(crate) mod exec_sync;
mod host_directory;
mod identity;
mod image_volume;
pub(crate) mod kill;
pub(crate) mod log_file;
mod object;
pub(crate) mod outside_files;
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
pub use config::{
    ContainerConfig, DeviceMapping, GroupsPolicy, ImageVolume, Propagation, SeccompChoice, Security, UserChoice, Volume,
};
pub(crate) use object::{Container, ContainerMetadata, ContainerPhase, ContainerRecord, SPEC};
pub(crate) use spec::apparmor;
pub use start::START_ERROR;
pub use status::{ContainerState, ContainerStatus, ExecOutput, ExecRequest};
