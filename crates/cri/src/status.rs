//! Converts the state of the engine to messages.

mod container;
mod engine;
mod filter;
mod image;
mod info;
mod metrics;
mod sandbox;
mod stats;

pub(crate) use container::{listed as listed_container, status as container_status};
pub(crate) use engine::engine_info;
pub(crate) use filter::{ContainerFilter, SandboxFilter};
pub(crate) use image::image;
pub(crate) use info::{container as container_info, image as image_info, sandbox as sandbox_info};
pub(crate) use metrics::{Filesystem, descriptors, of_sandbox as sandbox_metrics};
pub(crate) use sandbox::{listed as listed_sandbox, status as sandbox_status};
pub(crate) use stats::{
    attributes_of_container, attributes_of_sandbox, filesystem, of_container as container_stats,
    of_sandbox as sandbox_stats, usage_of_container, usage_of_sandbox,
};

/// Converts nanoseconds since the epoch to the signed integer of the CRI.
pub(crate) fn time(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

/// Returns the current time in nanoseconds since the epoch.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
