//! The Container Network Interface: configurations, results, and plugins that are programs.
//!
//! Source: the CNI specification 1.1.0, and 0.3.1 to 1.0.0 for older configurations.

mod chain;
mod directory;
mod end;
mod exec;
mod progress;
mod result;
mod start;

pub(crate) use chain::{Chain, Element, Plugin};
pub(crate) use directory::Directory;
pub(crate) use end::end_all_of;
pub(crate) use exec::{Call, Limits, Programs};
pub use progress::PluginCall;
pub(crate) use progress::Progress;
pub(crate) use result::{addresses, attachment, of_endpoint};
