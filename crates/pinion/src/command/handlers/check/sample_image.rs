//! The image of a check: the monitor's program, which is static, and a WebAssembly module. It needs no registry.

use std::{io, path::Path};

use cri_proto::{pinion::Chunk, v1};
use serde_json::json;

use crate::{Client, Failure};

/// Name of the image.
pub(super) const NAME: &str = "pinion.invalid/handlers-check:latest";
/// Program in the image.
pub(super) const PROGRAM: &str = "/pinmon";
/// Module in the image.
pub(super) const MODULE: &str = "/module.wasm";
/// Exit code of the module.
pub(super) const MODULE_EXIT: i32 = 7;
/// `(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))) (memory (export "memory") 1)
/// (func (export "_start") (call 0 (i32.const 7))))`
const MODULE_BINARY: &[u8] = b"\0asm\x01\0\0\0\x01\x08\x02\x60\x01\x7f\0\x60\0\0\
    \x02\x24\x01\x16wasi_snapshot_preview1\x09proc_exit\0\0\x03\x02\x01\x01\x05\x03\x01\0\x01\
    \x07\x13\x02\x06memory\x02\0\x06_start\0\x01\x0a\x08\x01\x06\0\x41\x07\x10\0\x0b";
/// Maximum size of the program, in bytes.
const PROGRAM_MAX: u64 = 64 << 20;
/// Size of a message, in bytes.
const CHUNK: usize = 256 << 10;

/// Imports the image, and returns its name.
pub(super) async fn import(client: &mut Client, program: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(format!("make an image of {}: {error}", program.display()));
    let length = program.metadata().map_err(failed)?.len();
    if length > PROGRAM_MAX {
        return Err(failed(io::Error::other(format!("larger than {PROGRAM_MAX} bytes"))));
    }
    let archive = archive(&std::fs::read(program).map_err(failed)?).map_err(failed)?;
    let chunks: Vec<Chunk> = archive.chunks(CHUNK).map(|data| Chunk { data: data.to_vec() }).collect();
    client.native.load(tokio_stream::iter(chunks)).await?;
    Ok(NAME.to_owned())
}

/// Removes the image. One that cannot be removed is replaced by the next check.
pub(super) async fn remove(client: &mut Client) {
    let image = Some(v1::ImageSpec { image: NAME.to_owned(), ..Default::default() });
    let _ = client.images.remove_image(v1::RemoveImageRequest { image }).await;
}

/// Returns a docker archive with one image of one layer that contains the program and the module.
fn archive(program: &[u8]) -> io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    add(&mut layer, PROGRAM.trim_start_matches('/'), 0o755, program)?;
    add(&mut layer, MODULE.trim_start_matches('/'), 0o644, MODULE_BINARY)?;
    let layer = layer.into_inner()?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &layer);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": [PROGRAM, "sample"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{hex}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    add(&mut archive, "config.json", 0o644, config.to_string().as_bytes())?;
    add(&mut archive, "layer.tar", 0o644, &layer)?;
    archive.into_inner()
}

/// Returns the architecture as Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn add(archive: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, name, content)
}
