//! Has the linker fold identical functions, if it can: a third of a hundred megabytes of a program that is built for tests is instances of
//! generic functions, and memory that is resident grows with them.

use std::{env, path::Path, process::Command};

/// Rust does not promise that functions have different addresses, and nothing here compares them.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    if links_with_folding().unwrap_or(false) {
        println!("cargo:rustc-link-arg-bins={FOLD}");
    }
}

/// Whether an empty program can be linked so: rustc's LLD knows the option, and GNU ld does not.
fn links_with_folding() -> Option<bool> {
    let directory = env::var_os("OUT_DIR")?;
    let source = Path::new(&directory).join("empty.rs");
    std::fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.arg("--target").arg(env::var_os("TARGET")?).arg("--out-dir").arg(&directory).arg(&source);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    let linked = rustc.args(["-C", &format!("link-arg={FOLD}")]).output().ok()?;
    Some(linked.status.success())
}
