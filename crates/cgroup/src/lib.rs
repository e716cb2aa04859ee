//! cgroup v1, v2 and hybrid layouts: create, join without waiting, limit, freeze, kill, and read statistics.
//!
//! A tree is a mounted cgroup hierarchy (cgroups(7)). [`Hierarchies`] holds a directory descriptor of every tree, so
//! that all operations work in any mount namespace. A [`Group`] is one path in all trees:
//!
//! ```text
//!             controllers        kill, freeze, pids, events      joined by the child
//!   V1        v1 trees           freezer's tree                   "0" to every `tasks`
//!   Hybrid    v1 trees           v2 tree (without controllers)    clone3(CLONE_INTO_CGROUP), then "0" to every `tasks`
//!   V2        v2 tree            v2 tree                          clone3(CLONE_INTO_CGROUP)
//! ```
//!
//! The v2 tree is useful without controllers, too: it has `cgroup.kill`, `cgroup.freeze` and `cgroup.events`, and child
//! groups for the processes of one exec ([`Group::exec_group`]).
//!
//! The lifecycle of a container's group:
//!
//! ```no_run
//! # fn main() -> Result<(), cgroup::Error> {
//! let trees = cgroup::Hierarchies::open()?;
//! let path = cgroup::GroupPath::parse("/pinion/sandbox/container")?;
//! let limits = cgroup::Limits::from_spec(&oci::Resources::default())?;
//! let group = cgroup::Group::create(&trees, &path, &limits)?;
//! let joiner = group.joiner()?;
//! // clone3 with `joiner.v2_dir()`; in the child: `joiner.join_early()`, setup, `joiner.join_memory()`, execve
//! group.kill()?;
//! group.remove()?;
//! trees.remove_empty_parents(&path, None);
//! # Ok(())
//! # }
//! ```
//!
//! The runtime spec expresses limits by their v1 values, which are converted for v2 as in runc and crun. A limit that
//! the machine cannot apply is an error that names the field and the controller, with two exceptions on which the
//! kubelet relies: huge page limits if no tree has the controller, and "no swap beyond memory" on a kernel without swap
//! accounting.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod apply;
mod complete;
mod controller;
mod convert_v1;
mod convert_v2;
mod create;
mod delegate;
mod descendant;
mod descriptors;
mod device_program;
mod devices;
mod error;
mod freeze;
mod group;
mod hierarchies;
mod join;
mod leftover;
mod limits;
mod oom;
mod path;
mod pids;
mod privileges;
mod raw_files;
mod remove;
mod scope;
mod setting;
mod signal;
mod stat_readers;
mod stats;
pub mod systemd;
mod thaw;
mod tree;
mod wait;

pub use error::{Error, ErrorKind};
pub use group::Group;
pub use hierarchies::{Hierarchies, Layout};
pub use join::Joiner;
pub use limits::{Limits, Nesting};
pub use oom::OomNotifications;
pub use path::GroupPath;
pub use remove::{Removal, RemovalStatus};
pub use stats::{DeviceIo, Pressure, Stalls, Stats};
pub use thaw::ThawDescendants;
