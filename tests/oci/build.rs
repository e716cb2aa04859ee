//! Compiles the container's own program: static, so that it runs in a root that holds nothing else.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=payload/probe.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR")).join("probe");
    let status = Command::new("cc")
        .args(["-static", "-O1", "-s", "-Wall", "-Werror", "-o"])
        .arg(&out)
        .arg("payload/probe.c")
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cc -static payload/probe.c: gcc and libc6-dev are needed (scripts/setup test)"
    );
}
