//! What one call leaves for the next, in `<root>/<id>`:
//!
//! ```text
//! state.json     the record, written once, beside and renamed; without it the container is being made, or never was
//! seccomp.bpf    the compiled filter, for exec; absent: there is none
//! start          the socket over which a created container is started
//! ```
//!
//! Who makes a container holds a lock on its folder until the record is written: a folder without a record and without a
//! lock is what a killed `create` left, and is cleared away by the next `create` or `delete --force` of that id.

mod folder;
mod record;
mod start_socket;

pub(crate) use folder::{Folder, list};
pub(crate) use record::{Record, VERSION, start_time};
