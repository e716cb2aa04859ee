//! Generated gRPC types: [the CRI, version 1](v1) and [our own service](pinion), clients and servers.
//!
//! `proto/cri-v1.proto` is an unmodified copy of `api.proto` of k8s.io/cri-api v0.37.2. `proto/pinion-v1.proto` adds
//! what the command line needs beyond it. Both are served on one Unix socket; [`connect`] connects to it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod command_error;
mod connect;
pub mod encoded;

pub use command_error::CommandError;
pub use connect::{MESSAGE_MAX, connect};

/// Format of the requests and responses of `Info` and `Why` of [`pinion`]. A peer that sends 0 is older than these
/// messages.
pub const REPORT_FORMAT: u32 = 1;

/// Metadata of a `RunPodSandbox` request: the named networks of the pod, as a JSON object. It is not part of the message,
/// all of which the kubelet fills from objects of the cluster's users.
pub const NETWORK_METADATA: &str = "pinion-network-bin";

/// Package `runtime.v1`: the Container Runtime Interface.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The server side of `runtime.v1`, where long lists are [`encoded`] responses.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod server {
    include!(concat!(env!("OUT_DIR"), "/server/runtime.v1.rs"));
}

/// Package `pinion.v1`: pulls with progress, archives, and sessions without a streaming server.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod pinion {
    tonic::include_proto!("pinion.v1");
}
