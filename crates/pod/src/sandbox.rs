//! Operations on pods. What a pod consists of is in [`crate::namespaces`].
//!
//! ```text
//!            run                                        stop            remove
//! (nothing) ────▶ Reserved ──▶ Networked ──▶ Ready ──────────▶ Stopped ──────▶ (nothing)
//!                    └─────────────┴── on failure: teardown, then (nothing)
//! ```
//! A pod in a virtual machine can be saved while it is ready (`checkpoint`), and created from what was saved (`restore`).

pub(crate) mod after_exit;
mod capability_args;
mod check_handler;
pub(crate) mod check_network;
pub(crate) mod checkpoint;
pub(crate) mod connect;
mod logs;
pub(crate) mod parent_cgroup;
pub(crate) mod port_forward;
pub(crate) mod remove;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod sandbox_container;
mod saved_pod;
pub(crate) mod stop;
mod sysctls;
pub(crate) mod teardown;
pub(crate) mod update;
mod vm;

pub use logs::remove_logs;
