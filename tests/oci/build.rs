//! Compiles the test program for containers: static, so that it runs in a root file system without libraries.

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
        "compile payload/probe.c: cc failed; install gcc and libc6-dev (scripts/setup test)"
    );
}
