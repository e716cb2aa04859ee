//! Real containers on the real kernel, created by a process like the monitor: single-threaded, in its own mount
//! namespace with a tmpfs root, procfs and sysfs. Needs root and a static busybox. Arguments are parts of the names of
//! cases to run.

mod bundle;
mod cases;
mod node;

use node::Node;

/// A case: its name and its function.
pub(crate) type Case = (&'static str, fn(&Node));

fn main() {
    let node = Node::enter();
    let before = node::mount_count();
    let results = testbed::run_cases(cases::all(), |case| case(&node));
    let leftover = node.clean_up();
    assert!(!leftover || !results.all_passed(), "containers were left over");
    assert_eq!(node::mount_count(), before, "mounts were left over in the test's namespace");
    results.exit()
}
