//! The volatile state directory: the ledger of what was created.
//!
//! ```text
//! <state>/boot_id                         everything below is discarded after a reboot
//! <state>/sandbox/<id>/metadata.json      immutable, written before anything is created
//!                      status.json        written to a temporary file and renamed
//! <state>/container/<id>/metadata.json status.json process.json stdin stdout stderr
//! <state>/broken/                         records that could not be read
//! ```
//! A directory is removed after everything that it names has been removed. Nothing is synced: after a crash of the
//! machine the state is discarded anyway.

mod directory;
mod record;

pub(crate) use directory::StateDirectory;
pub(crate) use record::{Kind, LoadedRecord, RECORD_VERSION, Records};
