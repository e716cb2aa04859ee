//! The image of the containers: a docker archive with a static busybox, which every engine loads.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::json;

use super::node::{Node, output};
use crate::engine::Failure;

/// Name of the image.
pub(super) const NAME: &str = "bench:1";
/// Path of the archive on a node.
const ARCHIVE: &str = "/run/image.tar";

/// The archive.
pub(super) struct Image(Vec<u8>);

impl Image {
    /// Builds the archive in a temporary directory with tar(1) and sha256sum(1).
    pub(super) fn build(busybox: &Path) -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("pinion-bench-network-{}", std::process::id()));
        let image = build_in(&directory, busybox);
        let _ = fs::remove_dir_all(&directory);
        image
    }

    /// Writes the archive to a node and returns its path there.
    pub(super) fn put(&self, node: &Node) -> Result<String, Failure> {
        fs::write(node.path(ARCHIVE), &self.0).map_err(|e| Failure(format!("write the image: {e}")))?;
        Ok(ARCHIVE.to_owned())
    }
}

fn build_in(directory: &Path, busybox: &Path) -> Result<Image, Failure> {
    let fail = |e: std::io::Error| Failure(format!("build the image of {}: {e}", busybox.display()));
    let program = fs::read(busybox).map_err(fail)?;
    // A dynamic program contains the path of its loader.
    if program.windows(3).take(4096).any(|bytes| bytes == b"ld-") {
        let message = "is not static; install busybox-static, or name a static one with --busybox";
        return Err(Failure(format!("{} {message}", busybox.display())));
    }
    let sleep = directory.join("root/bin/sleep");
    fs::create_dir_all(directory.join("root/bin")).map_err(fail)?;
    fs::write(&sleep, program).map_err(fail)?;
    fs::set_permissions(&sleep, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    let run = |words: &[&str]| output(Command::new(words[0]).args(&words[1..]).current_dir(directory), words[0]);
    run(&["tar", "--numeric-owner", "--owner=0", "--group=0", "-C", "root", "-cf", "layer.tar", "."])?;
    let digest = run(&["sha256sum", "layer.tar"])?;
    let digest = format!("sha256:{}", digest.split_whitespace().next().unwrap_or_default());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Cmd": ["/bin/sleep"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]}});
    let manifest = json!([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]);
    fs::write(directory.join("config.json"), config.to_string()).map_err(fail)?;
    fs::write(directory.join("manifest.json"), manifest.to_string()).map_err(fail)?;
    run(&["tar", "-cf", "image.tar", "manifest.json", "config.json", "layer.tar"])?;
    Ok(Image(fs::read(directory.join("image.tar")).map_err(fail)?))
}
