//! Sets the entry point of the static program to `syscall::early`.

fn main() {
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("ARCH") == "x86_64" && target("FEATURE").split(',').any(|feature| feature == "crt-static") {
        println!("cargo:rustc-link-arg-bins=-Wl,-e,program_early_start");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
