//! Compiles the two `.proto` files in pure Rust: no `protoc` is needed.

use std::path::PathBuf;

const PROTOS: [&str; 2] = ["proto/cri-v1.proto", "proto/pinion-v1.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
        // Each file by itself: they share no types, and neither is allowed to see the other's.
        let files = protox::compile([PathBuf::from(proto)], ["proto"])?;
        tonic_prost_build::configure().build_client(true).build_server(true).compile_fds(files)?;
    }
    Ok(())
}
