//! What Prometheus reads: `GET /metrics`, and `/healthz` for whoever asks whether the daemon works.
//!
//! Nothing is collected between scrapes: the parts count in atomics of their own ([`telemetry`]), and a scrape reads
//! them all. No metric has a label whose values come from images, pods or clients, so a page has some hundred lines
//! whatever the node runs; who wants figures per container asks the kubelet, which has them from the CRI.

mod catalogue;
mod process;
mod runtime;
mod scrape;
mod server;
#[cfg(test)]
mod tests;

/// Whom a scrape asks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) engine: pod::Engine,
    pub(crate) streaming: cri::Streaming,
    pub(crate) log: super::logging::Control,
}

pub(crate) use runtime::{thread_ended, thread_started};
pub(crate) use server::Endpoint;
