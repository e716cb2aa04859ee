//! Pods: what containers share.

mod config;
mod ports;
mod status;

pub use config::{Dns, Name, PidMode, SandboxConfig, SharedMode};
pub use status::{SandboxState, SandboxStatus};
