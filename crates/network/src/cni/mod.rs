//! The Container Network Interface: configurations, results, and plugins that are programs.
//!
//! Source: the CNI specification 1.1.0, and 0.3.1 to 1.0.0 for older configurations.

mod chain;
mod exec;
mod folder;
mod result;

pub(crate) use chain::{Chain, Element, Plugin};
pub(crate) use exec::{Call, Programs};
pub(crate) use folder::Folder;
pub(crate) use result::{addresses, attachment, of_endpoint};
