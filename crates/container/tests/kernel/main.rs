//! Real containers on the real kernel, created by a process like the monitor: single-threaded, in its own mount
//! namespace with a tmpfs root, procfs and sysfs. Needs root and a static busybox. Arguments are parts of the names of
//! cases to run.

mod bundle;
mod cases;
mod node;

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::Node;

/// A case: its name and its function.
pub(crate) type Case = (&'static str, fn(&Node));

/// `cases!(a, b)` lists the functions with their names.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), $name as fn(&$crate::node::Node))),*] };
}

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let node = Node::enter();
    let before = node::mount_count();
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, run) in cases::all() {
        let name = name.trim_start_matches("kernel::cases::");
        if !filters.is_empty() && !filters.iter().any(|part| name.contains(part.as_str())) {
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
    let leftover = node.clean_up();
    assert!(!leftover || !failed.is_empty(), "containers were left over");
    assert_eq!(node::mount_count(), before, "mounts were left over in the test's namespace");
    println!("\ntest result: {count} cases, {} failed {failed:?}", failed.len());
    std::process::exit(i32::from(!failed.is_empty()));
}
