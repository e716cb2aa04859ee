//! What one call leaves for the next, in `<root>/<id>`:
//!
//! ```text
//! state.json     the record, written once, beside and renamed; without it the container is being made, or never was
//! seccomp.bpf    the compiled filter, for exec; absent: there is none
//! group          a symlink to where its cgroup is, from before that is made
//! root           a symlink that tells what was mounted at the root of one without a mount namespace, before it was
//! start          the socket over which a created container is started
//! ```
//!
//! Who makes a container holds a lock on its directory until the record is written: a directory without a record and
//! without a lock is what a killed `create` left, and is cleared away, with its cgroup, by the next `create` or
//! `delete` of that id.
//!
//! Whether a container was started is asked of the kernel, not of a file: until execve somebody listens on `start`, and
//! no process can be killed in a way that would leave that untrue.

mod directory;
mod group;
mod record;
mod shown_root;
mod start_socket;

pub(crate) use directory::{Directory, list};
pub(crate) use group::remains;
pub(crate) use record::{Record, VERSION, start_time};
