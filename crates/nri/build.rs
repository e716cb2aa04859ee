//! Compiles the messages of the protocol in pure Rust: no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "proto/nri-v1alpha1.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    // The services are spoken over ttrpc, for which `src/ttrpc.rs` needs the messages only.
    tonic_prost_build::configure().build_client(false).build_server(false).btree_map(".").compile_fds(files)?;
    Ok(())
}
