use std::{fs, os::unix::fs::PermissionsExt};

use system_tests::Node;
use testbed::make_image_with;

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
    make_image_with(&dir, IMAGE, &[("ADD", added.to_str().expect("UTF-8"))]);
    node.pinion(&["load", "-i", dir.join("image.tar").to_str().expect("UTF-8")]).ok();
}
