//! Upgrade of the monitor. It executes another program in its own process, and so remains the parent of every
//! container.
//!
//! ```text
//!  daemon ── Upgrade[Program] ──▶ request/upgrade.rs   sealed copy; from here on no request is read from the daemon
//!                                     │ until no child is between clone and execve and all answers are sent
//!                                     ▼
//!                                 save.rs              state as JSON in a memfd, with the numbers of its descriptors
//!                                     │
//!            candidate `check-state` ─┤ check.rs       a child: does the program start, can it read this state?
//!                                     ▼
//!                                 execute.rs           execve, with every descriptor left open
//!                                     │
//!            new program `resume` ────┤ restore.rs     uses duplicates, so that the originals are unchanged ...
//!                                     │                ... for the previous program, executed again if this fails
//!                                     ▼
//!  daemon ◀── Welcome ──────────── the event loop continues; the connection was never closed
//! ```
//!
//! The kernel preserves what belongs to the process: pid, children, zombies, session, mount namespace, blocked and
//! pending signals, the subreaper attribute. In the meantime output waits in FIFOs, and the journal is idle between two
//! batches, so no line is lost or written twice.
//!
//! The saved state has its own format number. Fields may be added: a program that does not know a field ignores it, and
//! uses the default for a missing one. Any other change raises the number, and programs with different numbers refuse
//! each other before anything happens. A state with containers that have no process of their own has a higher number, so
//! that only a program that knows them takes over.

mod check;
mod execute;
mod restore;
mod save;
mod state;

pub(crate) use check::{SUBCOMMAND as CHECK, check_state};
pub(crate) use execute::try_execute;
pub(crate) use restore::resume;
