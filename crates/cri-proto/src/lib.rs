//! Generated gRPC types: [the CRI, version 1](v1) and [our own service](pinion), clients and servers.
//!
//! `proto/cri-v1.proto` is `api.proto` of k8s.io/cri-api v0.37.2, unchanged; `proto/pinion-v1.proto` adds what people's
//! command line needs beyond it. Both are served on one Unix socket; [`connect`] dials it.

#![forbid(unsafe_code)]

mod connect;
pub mod encoded;

pub use connect::{MESSAGE_MAX, connect};

/// Package `runtime.v1`: the Container Runtime Interface.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The server's side of `runtime.v1`; long lists are [`encoded`] answers there.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod server {
    include!(concat!(env!("OUT_DIR"), "/server/runtime.v1.rs"));
}

/// Package `pinion.v1`: progress of pulls, archives, sessions without a streaming server.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod pinion {
    tonic::include_proto!("pinion.v1");
}
