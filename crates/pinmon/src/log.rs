//! From a container's output to its log, each byte exactly once, whenever this process is killed.
//!
//! ```text
//!   container ── write ──▶ FIFO ──tee──▶ scratch pipe ──read──▶ journal.data   (nothing consumed yet)
//!                           │                                      │ cut into whole lines: n bytes
//!                           │                     journal: Prepared{container, stream, log file, its size, n}
//!                           │                                      │ one writev
//!                           │                                      ▼
//!                           │                                   log file
//!                           │                     journal: Written
//!                           └──read exactly n──▶ journal.landing   (consumed; held NOT data before)
//!                                                 journal: Idle
//! ```
//!
//! A successor that finds `Prepared` cuts the log back to its size before and starts over; one that finds `Written`
//! tells from the landing area how many bytes were consumed and consumes the rest. What is not a whole line yet stays
//! in the FIFO for a while (`output.rs` says how long, and why not for ever), so no container needs a buffer here. The
//! journal is one small file in shared memory for each log writer (`log_writer.rs`).
//!
//! A log that was rotated between a monitor's death and the next one's start cannot be cut back: what the dead one
//! wrote of a batch then stands at the end of the old file, and whole in the new one.
//!
//! A terminal cannot be peeked: it is read straight into the landing area (`Reading`, then `Received`), and what was
//! read is written at once, a line or not. Only zero bytes at the very end of a read that was cut off are lost then.

pub(crate) mod format;
pub(crate) mod hold;
pub(crate) mod journal;
pub(crate) mod pump;
pub(crate) mod recover;
pub(crate) mod sink;
