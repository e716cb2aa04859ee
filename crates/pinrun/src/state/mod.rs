//! What one call leaves for the next, in `<root>/<id>`:
//!
//! ```text
//! state.json     the record, written once, beside and renamed
//! seccomp.bpf    the compiled filter, for exec; absent: there is none
//! start          the socket over which a created container is started
//! ```

#![allow(dead_code)]

mod folder;
mod record;

pub(crate) use folder::Folder;
pub(crate) use record::Record;
