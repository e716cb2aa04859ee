//! What the tests of all crates share. Only tests depend on this crate (`crates/tidy/tests/layers.rs`).
//!
//! ```text
//! wait          a condition of another process, with a deadline
//! isolation     a test in a process of its own, in new namespaces: a node that is gone when the test ends
//! command       commands that must succeed; the programs under test (`PINION_BIN`) and files of the checkout
//! busybox       a root file system
//! spec          the smallest spec that runs a shell
//! registry      docker-registry
//! process       descriptors, threads and memory of a process
//! cases         a harness for programs that must have a single thread
//! stale_groups  control groups of runs that were killed
//! ```
//!
//! It knows no other crate but `syscall`. What only the tests of one crate need is in that crate's `tests/node`.
//!
//! # Requirements
//! Root, and what `scripts/setup test` installs.

#![forbid(unsafe_code)]

mod busybox;
mod cases;
mod command;
mod isolation;
mod process;
mod registry;
mod spec;
mod stale_groups;
mod wait;

pub use busybox::{busybox, make_root};
pub use cases::{Results, run_cases};
pub use command::{checkout, compile, make_image, make_image_with, program, run, shell};
pub use isolation::{
    Namespaces, TestRun, node_id, on_a_node, own_mounts, run_on_a_node, test_name, this_test, this_test_under,
};
pub use process::{Memory, descriptors, memory, threads};
pub use registry::Registry;
pub use spec::spec;
pub use stale_groups::remove_stale_groups;
pub use wait::{holds_within, wait_until, wait_until_with};
