use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use system_tests::Node;

use crate::IMAGE;

const ATTACKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/attacker"));

/// Builds the image of the campaign (busybox and the attacker) in the directory of the node, and loads it.
///
/// # Panics
/// If the image cannot be built or loaded.
pub(crate) fn load(node: &Node) {
    let dir = node.dir.path().join("image");
    let added = dir.join("added");
    fs::create_dir_all(added.join("bin")).expect("create the directory of the image");
    let program = added.join("bin/attacker");
    fs::write(&program, ATTACKER).expect("write the attacker");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make the attacker executable");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make-image");
    let output = Command::new(script).arg(&dir).arg(IMAGE).env("ADD", &added).output().expect("start make-image");
    assert!(output.status.success(), "make-image: {}", String::from_utf8_lossy(&output.stderr));
    node.pinion(&["load", "-i", dir.join("image.tar").to_str().expect("UTF-8")]).ok();
}
