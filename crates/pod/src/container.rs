//! Containers: a root, a process, its limits, its log.

mod config;
mod status;

pub use config::{
    ContainerConfig, DeviceMapping, GroupsPolicy, Propagation, SeccompChoice, Security, UserChoice, Volume,
};
pub use status::{ContainerState, ContainerStats, ContainerStatus, ExecOutput, ExecRequest};
