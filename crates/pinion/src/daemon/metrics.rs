//! Serves `GET /metrics` for Prometheus, and `/healthz` for health checks.
//!
//! Nothing is collected between scrapes: the crates count in atomics ([`telemetry`]), and a scrape reads all of them.
//! No metric has a label whose values come from images, pods or clients, so the page has a few hundred lines regardless
//! of what the node runs. The kubelet serves metrics per container, which it gets from the CRI.

mod catalogue;
mod process;
mod runtime;
mod scrape;
mod server;
#[cfg(test)]
mod tests;

/// The sources of the metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) engine: pod::Engine,
    pub(crate) streaming: cri::Streaming,
    pub(crate) log: super::logging::Control,
}

pub(crate) use runtime::{thread_ended, thread_started};
pub(crate) use server::Endpoint;
