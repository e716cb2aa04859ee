//! Tests of the real program on the real kernel, with separate roots, cgroups and bundles. They need root and a static
//! busybox. Arguments select the cases whose names contain them.
//!
//! The tests run in a mount namespace with its own `/run`, so that pins of pinrun are removed with it.

mod bundle;
mod cases;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// `cases!(a, b)`: a list of the functions with their names.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), $name as fn())),*] };
}

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    syscall::mount_namespace::unshare_mounts().expect("a new mount namespace (are you root?)");
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
    mount(c"tmpfs", c"/run", c"tmpfs", MountFlags::empty(), None).expect("mount a tmpfs on /run");
    let (mut count, mut failed) = (0, Vec::new());
    for (name, run) in cases::all() {
        let name = name.trim_start_matches("commands::cases::");
        if !filters.is_empty() && !filters.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        count += 1;
        let ok = catch_unwind(AssertUnwindSafe(run)).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed.extend((!ok).then_some(name));
    }
    println!("\ntest result: {count} cases, {} failed {failed:?}", failed.len());
    std::process::exit(i32::from(!failed.is_empty()));
}
