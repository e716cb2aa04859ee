//! Containers without a mount namespace of their own: what they mount is in the caller's, and goes with them.

use std::{fs, time::Instant};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] =
    crate::cases!(a_whole_life, one_that_does_not_come_to_be, killed_at_any_moment, a_broken_record);

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
