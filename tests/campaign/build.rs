//! Compiles the program of the campaign's containers, statically, because their root file system has no libraries.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=payload/attacker.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR")).join("attacker");
    let status = Command::new("cc")
        .args(["-static", "-pthread", "-O1", "-s", "-Wall", "-Werror", "-o"])
        .arg(&out)
        .arg("payload/attacker.c")
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cc -static payload/attacker.c: gcc, libc6-dev and linux-libc-dev are needed (scripts/setup test)"
    );
}
