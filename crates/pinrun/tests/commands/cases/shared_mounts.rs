//! Containers without a mount namespace: their mounts are in the caller's, and are removed with the container.

use std::{fs, time::Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    mounts_are_removed_with_the_container,
    a_failed_creation_leaves_no_mounts,
    killed_at_any_moment,
    a_broken_record,
    mounts_of_others_are_kept,
);

/// The number of moments during a creation at which it is killed.
const MOMENTS: u32 = 20;

fn sharing(args: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(args);
    let namespaces = bundle.spec["linux"]["namespaces"].as_array_mut().expect("namespaces is an array");
    namespaces.retain(|namespace| namespace["type"] != "mount");
    bundle.write();
    bundle
}

fn mounts_are_removed_with_the_container() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["create", ID]).ok();
    assert!(bundle.mounts() > 0, "the container has mounts in this namespace");
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.assert_removed();
}

fn a_failed_creation_leaves_no_mounts() {
    let bundle = sharing(&["nothing-of-this-name"]);
    for command in ["create", "run"] {
        bundle.pinrun(&[command, ID]).failed("executable file not found in $PATH");
        bundle.assert_removed();
    }
}

fn killed_at_any_moment() {
    let bundle = sharing(&["sleep", "1000"]);
    let start = Instant::now();
    bundle.pinrun(&["create", ID]).ok();
    let whole = start.elapsed();
    bundle.pinrun(&["delete", ID]).ok();
    for moment in 0..MOMENTS {
        super::killed::kill_after(&bundle, &["create", ID], whole * moment / (MOMENTS - 1));
        bundle.pinrun(&["delete", "-f", ID]).ok();
        bundle.assert_removed();
    }
}

fn a_broken_record() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    fs::write(bundle.root().join(ID).join("state.json"), "{").expect("write a state");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.assert_removed();
}

/// After a create was killed before it attached its root, another program mounted a new root.
fn mounts_of_others_are_kept() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    let saved = fs::read_link(bundle.root().join(ID).join("root")).expect("access the saved root mount");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    let root = bundle.path("rootfs");
    mount("tmpfs", &root, "tmpfs", MountFlags::empty(), None).expect("mount a tmpfs");
    fs::create_dir(bundle.root().join(ID)).expect("create the state directory");
    std::os::unix::fs::symlink(saved, bundle.root().join(ID).join("root")).expect("access the saved root mount");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    assert_eq!(bundle.mounts(), 1, "a mount of another program was removed");
    unmount(&root, UnmountFlags::empty()).expect("unmount the tmpfs");
    bundle.assert_removed();
}
