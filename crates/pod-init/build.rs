//! Builds the init of pods with a shared PID namespace (`init.rs`): static, without a C library, embedded in
//! the library.

use std::{env, path::PathBuf, process::Command};

const SOURCE: &str = "init.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR")).join("pod-init");
    let (rustc, target) = (env::var_os("RUSTC").expect("RUSTC"), env::var("TARGET").expect("TARGET"));
    let linker = env::var(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"))).ok();
    let mut command = Command::new(rustc);
    command.args(["--crate-name", "pod_init", "--crate-type", "bin", "--edition", "2024", "--target", &target]);
    command.args(["-C", "panic=abort", "-C", "opt-level=s", "-C", "strip=symbols", "-C", "relocation-model=static"]);
    for argument in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,norelro", "-Wl,-n"]
    {
        command.args(["-C", &format!("link-arg={argument}")]);
    }
    if let Some(linker) = linker {
        command.args(["-C", &format!("linker={linker}")]);
    }
    let status = command.arg("-o").arg(&out).arg(SOURCE).status().expect("run rustc");
    assert!(status.success(), "compile {SOURCE}: {status}");
}
