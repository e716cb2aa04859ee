//! Compiles the two `.proto` files in pure Rust: no `protoc` is needed.

use std::path::PathBuf;

const CRI: &str = "proto/cri-v1.proto";
const PINION: &str = "proto/pinion-v1.proto";

/// Responses with thousands of rows, which the server sends pre-encoded (see `src/encoded.rs`).
const ENCODED: [&str; 10] = [
    "ListPodSandboxResponse",
    "ListContainersResponse",
    "ListContainerStatsResponse",
    "ListPodSandboxStatsResponse",
    "ListPodSandboxMetricsResponse",
    "StreamPodSandboxesResponse",
    "StreamContainersResponse",
    "StreamContainerStatsResponse",
    "StreamPodSandboxStatsResponse",
    "StreamPodSandboxMetricsResponse",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for proto in [CRI, PINION] {
        println!("cargo::rerun-if-changed={proto}");
    }
    // Each file is compiled by itself: they share no types, and neither may see the other's.
    let compile = |proto| protox::compile([PathBuf::from(proto)], ["proto"]);
    tonic_prost_build::configure().build_client(true).build_server(true).compile_fds(compile(PINION)?)?;
    tonic_prost_build::configure().build_client(true).build_server(false).compile_fds(compile(CRI)?)?;
    let directory = PathBuf::from(std::env::var("OUT_DIR")?).join("server");
    std::fs::create_dir_all(&directory)?;
    let mut server = tonic_prost_build::configure()
        .build_client(false)
        .build_server(true)
        .out_dir(directory)
        .extern_path(".runtime.v1", "crate::v1");
    for message in ENCODED {
        server = server.extern_path(format!(".runtime.v1.{message}"), format!("crate::encoded::{message}"));
    }
    server.compile_fds(compile(CRI)?)?;
    Ok(())
}
