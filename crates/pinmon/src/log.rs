//! Moves output of containers to their logs, each byte exactly once, even if this process is killed at any time.
//!
//! ```text
//!   container ── write ──▶ FIFO ──tee──▶ scratch pipe ──read──▶ journal.data   (nothing consumed yet)
//!                           │                                      │ cut into whole lines: n bytes
//!                           │                     journal: Prepared{container, stream, log file, its size, n}
//!                           │                                      │ one writev
//!                           │                                      ▼
//!                           │                                   log file
//!                           │                     journal: Written
//!                           └──read exactly n──▶ journal.landing   (consumed; contained NOT data before)
//!                                                 journal: Idle
//! ```
//!
//! A successor that finds `Prepared` truncates the log to its previous size and starts over. One that finds `Written`
//! determines from the landing area how many bytes were consumed, and consumes the rest. A partial line stays in the
//! FIFO for a limited time (`log_writer/feed.rs`), so no container needs a buffer here. Each log writer
//! (`log_writer.rs`) has a journal, a small file in shared memory.
//!
//! If a log was rotated between the death of a monitor and the start of its successor, it cannot be truncated: the part
//! of a batch that the dead monitor wrote remains at the end of the old file, and the whole batch is written to the new
//! one.
//!
//! A log that has reached its maximum size is replaced by an empty file of the same name before a batch is prepared
//! (`limit.rs`), so a batch is in one file. A successor opens the log by its name.
//!
//! A terminal cannot be peeked. It is read directly into the landing area (`Reading`, then `Received`), and all that
//! was read is written immediately, including partial lines. If a read is interrupted by a kill, only zero bytes at its
//! very end are lost.

pub(crate) mod format;
pub(crate) mod journal;
pub(crate) mod limit;
pub(crate) mod pipe_marker;
pub(crate) mod pump;
pub(crate) mod recover;
pub(crate) mod sink;
pub(crate) mod taps;
