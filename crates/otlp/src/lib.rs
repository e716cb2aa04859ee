//! Exports spans of [`tracing`] to an OpenTelemetry collector, with OTLP over gRPC.
//!
//! ```text
//! span closes ──▶ queue (bounded; if full: dropped and counted) ──▶ task: batches ──▶ TraceService/Export
//! ```
//!
//! [`Traces::layer`] is added to the subscriber once. [`Traces::set`] turns export on or off, or changes the collector,
//! while the program runs. While export is off, the layer is disabled, and a span of level DEBUG costs as much as a
//! disabled one.
//!
//! # Which spans are exported
//! Spans of our crates (the first part of the target), down to DEBUG. A span without a parent starts a trace. Its
//! fields can define the trace: `trace` (32 hexadecimal digits), `parent` (16) and `sampled`, which a server takes from
//! its client's `traceparent`. Without `sampled`, the share [`Settings::sample_ratio`] of traces is recorded. The trace
//! id determines which, so that all services that use this method agree. Children of a span that is not recorded are
//! not recorded either.
//!
//! Fields become attributes, with the names of the semantic conventions where they exist (see `attribute.rs`). A field
//! `error` sets the span's status to error. Events of level WARN and above become events of their span.
//!
//! # Guarantees
//! Nothing waits for the collector: while it is unreachable, up to [`QUEUE`] spans are queued, and further ones are
//! dropped and counted in [`Metrics`]. An outage is logged once when it starts and once when it ends.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attribute;
mod export;
mod layer;
mod proto;
mod settings;
mod span;
mod state;
mod traces;

pub use settings::{Settings, SettingsError};
pub use state::{Metrics, QUEUE};
pub use traces::Traces;
