//! Campaigns against a node: [containers that attack the engine](hostile), and [disks that fail](disks), each next to
//! pods of others that must notice nothing.
//!
//! The victims are pods of one container that prints numbered lines; they are probed through ExecSync by a gRPC client
//! of the campaign's own (crictl takes 20 ms per call), and their logs must hold every line once and in order. `make
//! test` runs the short forms (`tests/*.rs`); `tests/campaign/hostile` and `tests/campaign/disks` run the long ones.

#![forbid(unsafe_code)]

mod client;
pub mod disks;
mod groups;
pub mod hostile;
mod image;
mod inside;
mod latency;
mod leftovers;
mod log_check;
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

/// The campaign's image: busybox, and the program of victims and attackers.
pub(crate) const IMAGE: &str = "docker.io/library/campaign:1";

/// Signals tasks to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Signals all holders.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the stop was requested.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
