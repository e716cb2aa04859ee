//! Campaigns against a node: [containers that attack the engine](hostile), and [disks that fail](disks), each next to
//! other pods that must not be affected.
//!
//! These victims are pods with one container that prints numbered lines. They are probed with ExecSync by a gRPC client
//! of the campaign (crictl takes 20 ms per call), and their logs must contain every line once and in order. `make test`
//! runs the short forms (`tests/*.rs`); `tests/campaign/hostile` and `tests/campaign/disks` run the long ones.

#![forbid(unsafe_code)]

mod cgroups;
mod client;
pub mod disks;
pub mod hostile;
mod image;
mod latency;
mod leftovers;
mod log_check;
mod namespaces;
pub mod program;
mod programs;
mod random;
mod victim;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub(crate) use client::{Client, ContainerPlan, PodPlan};
pub(crate) use latency::{Record, Summary};

/// The image of the campaign: busybox, and the program of victims and attackers.
pub(crate) const IMAGE: &str = "docker.io/library/campaign:1";

/// Signals tasks to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Signals the stop to all clones.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the stop was requested.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
