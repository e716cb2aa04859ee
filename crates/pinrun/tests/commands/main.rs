//! Tests of the real program on the real kernel, with separate roots, cgroups and bundles. They need root and a static
//! busybox. Arguments select the cases whose names contain them.
//!
//! The tests run in a mount namespace with its own `/run`, so that pins of pinrun are removed with it.

mod bundle;
mod cases;

use rustix::mount::{MountFlags, mount};

fn main() {
    testbed::remove_stale_groups("pinion-test-pinrun-");
    testbed::own_mounts();
    mount(c"tmpfs", c"/run", c"tmpfs", MountFlags::empty(), None).expect("mount a tmpfs on /run");
    testbed::run_cases(cases::all(), |case| case()).exit()
}
