//! Spans of [`tracing`] to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! ```text
//! span closes ──▶ queue (bounded; full: dropped, counted) ──▶ task: batches ──▶ TraceService/Export
//! ```
//!
//! [`Traces::layer`] goes into the subscriber once and stays; [`Traces::set`] turns export on, off or elsewhere while
//! the program runs. While it is off the layer wants nothing, and a span of level DEBUG costs what a disabled one does.
//!
//! # What becomes a span
//! Spans of the crates that are ours (the target's first part), down to DEBUG. A span that has no parent begins a
//! trace. It may say which one by fields: `trace` (32 hex digits), `parent` (16) and `sampled`, as a server takes them
//! from its client's `traceparent`; without `sampled`, the share [`Settings::sample_ratio`] is recorded, chosen by the
//! trace's id so that every service of a trace that chooses so chooses the same. What is not recorded has no recorded
//! children.
//!
//! Fields become attributes, by the names of the semantic conventions where there are some (see `attribute.rs`). A
//! field `error` makes the span's status an error. Events of level WARN and above within a span become events of it.
//!
//! # What never happens
//! Nothing waits for the collector: while it is away, spans wait in a queue of [`QUEUE`], and what is more is dropped
//! and counted in [`Figures`]. One failure is told once in the log, and its end once.

#![forbid(unsafe_code)]

mod attribute;
mod export;
mod layer;
mod proto;
mod span;
mod traces;

pub use export::QUEUE;
pub use traces::{Figures, Settings, SettingsError, Traces};
