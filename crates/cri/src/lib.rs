//! The CRI service: converts gRPC requests to calls of [`pod`]. Only this crate uses protobuf, and it contains no
//! policy.
//!
//! ```text
//! message ──config──▶ valid configuration ──▶ pod::Engine ──status──▶ message
//!            │                                    │
//!            └─ InvalidArgument naming the field  └─ pod::Error → a gRPC code and message
//! ```
//!
//! Each RPC has a file: `runtime/<rpc>.rs` and `image/<rpc>.rs` for the two services of the CRI, and `native/<rpc>.rs`
//! for our own service (`pinion.v1`), which the command line uses for features that the CRI lacks. [`serve`] serves all
//! three on one socket.
//!
//! Two rules apply to every request:
//!
//! - A request that changes something runs to completion even if its client disconnects. When kubelet retries it, it is
//!   done, or the retry joins it (see [`pod::Engine`]); it is never half done.
//! - A refused request changes nothing, and the error names the field as it is called in the message
//!   (`config.linux.resources.cpu_quota: …`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod call;
mod config;
mod daemon;
mod deadline;
mod failure;
mod handler;
mod image;
mod native;
mod rows;
mod rpc;
mod runtime;
mod serve;
mod status;
mod streaming;
mod subject;
mod trace_context;

pub use daemon::{Daemon, DaemonFacts, Pending};
pub use rpc::{CODES, RpcMetrics, rpc_metrics};
pub use serve::{ServeError, serve};
pub use streaming::{BindError, SessionCounts, Streaming, StreamingOptions};

use failure::Failure;

/// Runtime name that `Version` returns.
pub const RUNTIME_NAME: &str = "pinion";
/// Version of all programs of this workspace.
pub const RUNTIME_VERSION: &str = env!("CARGO_PKG_VERSION");
