//! A node for a test: the real daemon and monitor in mount, network and PID namespaces of their own, with a registry
//! and `crictl` beside them.
//!
//! In its PID namespace `/proc` lists the node's processes and nothing else, so that a test can count them; when the
//! test ends, the namespace's first process is killed and the kernel takes everything else with it. What would survive
//! (cgroups, files) is checked by [`Node::end`].
//!
//! The programs come from `PINION_BIN` (a directory with `pinion` and `pinmon`) and `CRICTL`; `make test` sets both.

#![forbid(unsafe_code)]

mod crictl;
mod image;
mod node;
mod process;
mod run;

pub use crictl::{ContainerSpec, PodSpec};
pub use image::Registry;
pub use node::{Node, Options};
pub use process::Process;
pub use run::{Outcome, wait_until};
