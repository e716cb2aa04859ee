//! Containers without a mount namespace of their own: what they mount is in the caller's, and goes with them.

use std::{fs, time::Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = crate::cases!(
    a_whole_life,
    one_that_does_not_come_to_be,
    killed_at_any_moment,
    a_broken_record,
    what_others_mount_there_stays,
);

/// Kills at so many moments of a creation.
const MOMENTS: u32 = 20;

fn sharing(args: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(args);
    let namespaces = bundle.spec["linux"]["namespaces"].as_array_mut().expect("namespaces");
    namespaces.retain(|namespace| namespace["type"] != "mount");
    bundle.write();
    bundle
}

fn a_whole_life() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["create", ID]).ok();
    assert!(bundle.mounts() > 0, "they are here");
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.is_gone();
}

fn one_that_does_not_come_to_be() {
    let bundle = sharing(&["nothing-of-this-name"]);
    for command in ["create", "run"] {
        bundle.pinrun(&[command, ID]).failed("executable file not found in $PATH");
        bundle.is_gone();
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
        bundle.is_gone();
    }
}

fn a_broken_record() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    fs::write(bundle.root().join(ID).join("state.json"), "{").expect("a state");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.is_gone();
}

/// After a create that was killed before its root was attached, somebody made the root anew.
fn what_others_mount_there_stays() {
    let bundle = sharing(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    let note = fs::read_link(bundle.root().join(ID).join("root")).expect("a note");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    let root = bundle.path("rootfs");
    mount("tmpfs", &root, "tmpfs", MountFlags::empty(), None).expect("mount");
    fs::create_dir(bundle.root().join(ID)).expect("a directory");
    std::os::unix::fs::symlink(note, bundle.root().join(ID).join("root")).expect("a note");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    assert_eq!(bundle.mounts(), 1, "it is not ours");
    unmount(&root, UnmountFlags::empty()).expect("unmount");
    bundle.is_gone();
}
