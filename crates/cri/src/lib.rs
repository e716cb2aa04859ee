//! The CRI: gRPC in, [`pod`] calls, gRPC out. The only crate that knows protobuf, and one that holds no policy.
//!
//! ```text
//! message ──config──▶ valid configuration ──▶ pod::Engine ──status──▶ message
//!            │                                    │
//!            └─ InvalidArgument naming the field  └─ pod::Error → a gRPC code and its sentence
//! ```
//!
//! One RPC is one file: `runtime/<rpc>.rs` and `image/<rpc>.rs` for the two services of the CRI, `native/<rpc>.rs` for
//! our own (`pinion.v1`), which people's command line uses for what the CRI has not. All three are served on one socket
//! by [`serve`].
//!
//! Two rules stand behind every answer:
//!
//! - A request that changes something runs to its end even if its client hangs up: kubelet's retry then finds it done
//!   (or joins it, see [`pod::Engine`]), never half of it.
//! - A refusal names the field as the message has it (`config.linux.resources.cpu_quota: …`) and changes nothing.

#![forbid(unsafe_code)]

mod about;
mod answer;
mod attached;
mod call;
mod config;
mod daemon;
mod deadline;
mod ended;
mod failure;
mod image;
mod native;
mod rows;
mod rpc;
mod runtime;
mod serve;
mod status;
mod streaming;
mod trace_context;

pub use daemon::{Daemon, Pending};
pub use ended::remove_logs;
pub use rpc::{CODES, RpcFigures, rpc_figures};
pub use serve::{ServeError, serve};
pub use streaming::{BindError, SessionCounts, Streaming, StreamingOptions};

use failure::Failure;

/// Name by which `Version` knows this runtime.
pub const RUNTIME_NAME: &str = "pinion";
/// Version of the programs of this workspace.
pub const RUNTIME_VERSION: &str = env!("CARGO_PKG_VERSION");
