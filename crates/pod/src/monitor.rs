//! The daemon's side of `pinmon`.
//!
//! ```text
//!             requests                      events
//! engine ───▶ Monitor ───▶ Link (one connection) ───▶ Notices ───▶ engine
//!               │ ▲
//!       Custody ┘ └─ supervisor: connection lost → connect again, else start another pinmon → Adopt × n
//! ```
//! [`Custody`] has a duplicate of every descriptor that must not be lost: what a dead monitor held is handed to the
//! next.

mod custody;
mod figures;
mod launch;
mod link;
mod mounts;
mod ping;
mod request;
mod supervisor;
mod upgrade;

pub(crate) use custody::{Custody, Held, Inventory};
pub use figures::{MONITOR_REQUESTS, MonitorFigures};
pub(crate) use link::Link;
pub(crate) use request::{ExecWait, Made};
pub(crate) use supervisor::{Monitor, Notice};
