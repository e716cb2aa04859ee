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

mod adjust;
pub(crate) mod announce_stop;
pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod driver;
pub(crate) mod exit;
mod external;
pub(crate) mod identity;
pub(crate) mod kill;
mod module;
pub(crate) mod plugin_changes;
pub(crate) mod prepare;
pub(crate) mod remove;
pub(crate) mod reopen_log;
pub(crate) mod request_update;
pub(crate) mod runtime;
mod selinux;
pub(crate) mod shim;
pub(crate) mod spec;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod update;
pub(crate) mod vm;
