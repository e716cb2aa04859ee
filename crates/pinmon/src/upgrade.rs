//! Another program in this process: the monitor executes it in place and stays what it is to every container, their
//! parent.
//!
//! ```text
//!  daemon ── Upgrade[Program] ──▶ request/upgrade.rs   sealed copy; from here on nothing new is read from the daemon
//!                                     │ until no child is between clone and execve and all answers are sent
//!                                     ▼
//!                                 save.rs              all that is held, as JSON in a memfd: descriptors by their
//!                                 numbers │ candidate `check-state` ─┤ check.rs         a child: does the program
//!                                 start, can it read this state? ▼ execute.rs           execve, with every descriptor
//!                                 left open │ new program `resume` ────┤ restore.rs       duplicates first, so that
//!                                 everything is as it was ... │                  ... for the program before, executed
//!                                 again where this fails ▼
//!  daemon ◀── Welcome ──────────── the loop goes on; the connection was never closed
//! ```
//!
//! The kernel keeps what belongs to the process and not to its program: pid, children, zombies, session, mount
//! namespace, blocked and pending signals, the mark of a subreaper. Output waits in FIFOs meanwhile, and the journal is
//! idle between two batches, so no line is lost or written twice.
//!
//! What is saved has a format number of its own. Fields may be added to it (a program that does not know them ignores
//! them, one that misses them takes the default); anything else raises the number, and programs of different numbers
//! refuse each other before anything happens.

mod check;
mod execute;
mod restore;
mod save;
mod state;

use std::time::Duration;

use rustix::fd::OwnedFd;

pub(crate) use check::{COMMAND as CHECK, check_state};
pub(crate) use restore::resume;

use crate::connection::Asked;

/// How long children may take to come to execve, and the daemon to read its answers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An upgrade that was asked for.
pub(crate) struct Pending {
    pub(crate) asked: Asked,
    /// Sealed.
    pub(crate) program: OwnedFd,
    /// Moment of [`crate::clock::monotonic`] at which it is given up.
    pub(crate) until: Duration,
}
