//! Real containers on the real kernel, from a process that lives as the monitor does: one thread, in a mount namespace
//! of its own with a tmpfs root, procfs and sysfs. Needs root and a static busybox. Arguments are parts of names to
//! run.

mod bundle;
mod cases;
mod node;

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::Node;

/// A case: its name and what it does.
pub(crate) type Case = (&'static str, fn(&Node));

/// `cases!(a, b)`: the functions under their names.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), $name as fn(&$crate::node::Node))),*] };
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let node = Node::enter();
    let before = node::mount_count();
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, run) in cases::all() {
        let name = name.trim_start_matches("kernel::cases::");
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        count += 1;
        match catch_unwind(AssertUnwindSafe(|| run(&node))) {
            Ok(()) => println!("test {name} ... ok"),
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(name);
            }
        }
    }
    let left = node.leave();
    assert!(!left || !failed.is_empty(), "containers were left");
    assert_eq!(node::mount_count(), before, "mounts were left in the test's own namespace");
    println!("\ntest result: {count} cases, {} failed {failed:?}", failed.len());
    std::process::exit(i32::from(!failed.is_empty()));
}
