//! cgroup v1, v2 and hybrid trees: create, join without waiting, limit, freeze, kill, measure.
//!
//! [`Hierarchies`] holds every mounted tree by a directory descriptor, so all of this works from any mount namespace. A
//! [`Group`] is one path in all of them at once:
//!
//! ```text
//!             controllers        kill, freeze, pids, events      joined by the child
//!   V1        v1 trees           freezer's tree                   "0" into every `tasks`
//!   Hybrid    v1 trees           v2 tree (has no controllers)     clone3(CLONE_INTO_CGROUP), then "0" into every
//!   `tasks` V2        v2 tree            v2 tree                          clone3(CLONE_INTO_CGROUP)
//! ```
//!
//! The v2 tree is worth having without controllers too: it gives `cgroup.kill`, `cgroup.freeze`, `cgroup.events`, and a
//! place for the processes of one exec'ed command ([`Group::exec_group`]).
//!
//! A container's life:
//!
//! ```no_run
//! # fn main() -> Result<(), cgroup::Error> {
//! let trees = cgroup::Hierarchies::open()?;
//! let path = cgroup::GroupPath::parse("/pinion/sandbox/container")?;
//! let limits = cgroup::Limits::from_spec(&oci::Resources::default())?;
//! let group = cgroup::Group::create(&trees, &path, &limits)?;
//! let joiner = group.joiner()?;
//! // clone3 with `joiner.v2_dir()`; the child: `joiner.join_early()`, its set-up, `joiner.join_memory()`, execve
//! group.kill()?;
//! group.remove()?;
//! trees.remove_empty_parents(&path, None);
//! # Ok(())
//! # }
//! ```
//!
//! Limits come from the runtime spec in the words of v1 and are converted as runc and crun do today. What a machine
//! cannot apply is an error that names field and controller, with two exceptions that every kubelet relies on: huge
//! pages where no tree has that controller, and "no swap beyond memory" where the kernel does not count swap.

#![forbid(unsafe_code)]

mod apply;
mod below;
mod controller;
mod convert_v1;
mod convert_v2;
mod create;
mod delegate;
mod device_program;
mod devices;
mod error;
mod figures;
mod freeze;
mod group;
mod hand_over;
mod hierarchies;
mod join;
mod limits;
mod oom;
mod ownership;
mod path;
mod pids;
mod remains;
mod remove;
mod setting;
mod signal;
mod stats;
pub mod systemd;
mod thaw;
mod tree;
mod wait;

pub use error::Error;
pub use group::Group;
pub use hierarchies::{Hierarchies, Layout};
pub use join::Joiner;
pub use limits::{Limits, Nesting};
pub use oom::OomNotices;
pub use path::GroupPath;
pub use remove::{Removal, Removing};
pub use stats::{DeviceIo, Pressure, Stalls, Stats};
pub use thaw::ThawBelow;
