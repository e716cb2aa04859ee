//! Sets the version of wasmtime that `Cargo.lock` has, which names compiled code.

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo.lock is next to Cargo.toml");
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"wasmtime\"").skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = ")).expect("wasmtime has a version");
    println!("cargo:rustc-env=WASMTIME_VERSION={}", version.trim_matches('"'));
}
