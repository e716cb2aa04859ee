//! Checks of a node before and after it is switched to Pinion: `pinion doctor`.
//!
//! ```text
//! Host (files below a root) ─┐
//! probes (real system calls) ├─▶ Node ── CHECKS ──▶ Report: findings with id, severity, reason and fix
//! Settings, DaemonState ─────┘
//! ```
//!
//! A [`Node`] is collected once: processes, mounts, systemd units, the kubelet's flags and configuration, other engines.
//! The checks are functions of it; none of them changes the node. What the kernel supports is tried with real system
//! calls ([`Probes`]), on detached mounts and in namespaces of short-lived threads and processes.
//!
//! Files are bounded in size and directories in entries, because they may belong to anything that runs on the node.
//!
//! docs/doctor.md lists all checks.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod check;
mod engine;
mod finding;
mod host;
mod kubelet;
mod mounts;
mod node;
mod pinion;
mod probe;
mod processes;
mod program;
mod systemd;

pub use check::{CHECKS, Check, examine};
pub use engine::{Engine, Evidence};
pub use finding::{Finding, Report, Severity, Summary};
pub use host::Host;
pub use kubelet::Kubelet;
pub use node::{Node, Options};
pub use pinion::{CgroupDriver, DaemonState, Settings};
pub use probe::{Outcome, Probes};
