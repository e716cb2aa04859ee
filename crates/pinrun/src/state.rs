//! The state directory `<root>/<id>`, which one call leaves for the next:
//!
//! ```text
//! state.json     the record, written once and renamed into place; absent until the container is created
//! seccomp.bpf    the compiled seccomp filter, for exec; absent if the container has no filter
//! group          a symlink to the path of the cgroup, written before the cgroup is created
//! root           a symlink that records what was mounted at the root of a container without a mount namespace before
//!                that root was attached
//! start          the socket over which a created container is started
//! ```
//!
//! The call that creates a container holds a lock on its directory until the record is written. A directory without a
//! record and without a lock was left by a killed `create`; the next `create` or `delete` of that id removes it, with
//! its cgroup.
//!
//! Whether a container was started is determined from the kernel, not from a file: until execve a process listens on
//! `start`, and the kernel closes that socket however the process ends.

mod directory;
mod group;
mod record;
mod root_mount;
mod start_socket;
mod status;

pub(crate) use directory::{Directory, list};
pub(crate) use group::open_partial;
pub(crate) use record::{Record, VERSION, start_time};
