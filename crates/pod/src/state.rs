//! The volatile state directory, the ledger of what was made.
//!
//! ```text
//! <state>/boot_id                         all below is void after a reboot
//! <state>/sandbox/<id>/metadata.json      immutable, written before anything is made
//!                      status.json        written beside and renamed
//! <state>/container/<id>/metadata.json status.json process.json stdin stdout stderr
//! <state>/broken/                         records that could not be read
//! ```
//! A directory goes when everything that it names is gone. Nothing is synced: what a crash of the machine takes is void
//! anyway.

mod directory;
mod record;

pub(crate) use directory::StateDirectory;
pub(crate) use record::{Kind, Loaded, RECORD_VERSION, Records};
