//! Client of `pinmon`.
//!
//! ```text
//!             requests                      events
//! engine ───▶ Monitor ───▶ Link (one connection) ───▶ Notices ───▶ engine
//!               │ ▲
//!       Custody ┘ └─ supervisor: connection lost → connect again, else start another pinmon → Adopt × n
//! ```
//! [`custody`] has a duplicate of every descriptor that must not be lost: those of a dead monitor are handed to the
//! next one.

mod custody;
mod launch;
mod link;
mod metrics;
mod mounts;
mod namespaces;
pub(crate) mod orphans;
mod ping;
mod request;
mod supervisor;
mod upgrade;

pub(crate) use custody::{HeldObject, Inventory};
pub use metrics::{MONITOR_REQUESTS, MonitorMetrics};
pub(crate) use namespaces::OwnedNamespaces;
pub(crate) use request::{CreateOutcome, CreatedProcess, ExecWait};
pub(crate) use supervisor::{Monitor, Notice};
