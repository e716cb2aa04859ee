//! The Container Network Interface: configurations, results, and running plugin programs.
//!
//! Source: the CNI specification 1.1.0, and 0.3.0 to 1.0.0 for older configurations.

mod chain;
mod directory;
mod exec;
mod in_process;
mod kill;
mod load;
mod programs;
mod progress;
mod request;
mod result;

pub(crate) use chain::{Chain, Element, Plugin};
pub(crate) use directory::Directory;
pub(crate) use in_process::{is_built_in, is_deferrable};
pub(crate) use kill::kill_all_of;
pub(crate) use programs::{Limits, Programs};
pub use progress::PluginCall;
pub(crate) use progress::Progress;
pub(crate) use request::{Call, configuration};
pub(crate) use result::{addresses, attachment, from_endpoint};
