use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use system_tests::Node;

use crate::IMAGE;

const ATTACKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/attacker"));

/// Makes the campaign's image below a directory, busybox and the attacker, and loads it.
///
/// # Panics
/// If the image cannot be made or loaded.
pub(crate) fn load(node: &Node) {
    let dir = node.dir.path().join("image");
    let added = dir.join("added");
    fs::create_dir_all(added.join("bin")).expect("the directory of the image");
    let program = added.join("bin/attacker");
    fs::write(&program, ATTACKER).expect("the attacker is written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the attacker is executable");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make-image");
    let made = Command::new(script).arg(&dir).arg(IMAGE).env("ADD", &added).output().expect("make-image starts");
    assert!(made.status.success(), "make-image: {}", String::from_utf8_lossy(&made.stderr));
    node.pinion(&["load", "-i", dir.join("image.tar").to_str().expect("UTF-8")]).ok();
}
