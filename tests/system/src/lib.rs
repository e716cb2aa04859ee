//! A node for a test: the real daemon and monitor in new mount, network and PID namespaces, with a registry and
//! `crictl`.
//!
//! `/proc` of its PID namespace lists only the node's processes, so that a test can count them. When the test ends, the
//! init process of the namespace is killed, and with it the kernel kills all others. [`Node::end`] checks for leaked
//! objects that would survive (cgroups, files).
//!
//! The programs come from `PINION_BIN` (a directory with `pinion` and `pinmon`) and `CRICTL`; `make test` sets both.

#![forbid(unsafe_code)]

mod crictl;
mod guests;
mod image;
mod node;
mod process;
mod programs;
mod run;
mod wire;

pub use crictl::{ContainerSpec, PodSpec};
pub use guests::node_with_guests;
pub use image::Registry;
pub use node::{Node, Options};
pub use process::Process;
pub use programs::{CRUN, install_program};
pub use run::{Outcome, wait_until};
pub use wire::Wire;
