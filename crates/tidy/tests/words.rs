//! Checks for text that no committed source may contain, and for text that it must contain.

use tidy::{rust_sources, workspace_root};

/// Unfinished work, and tests that do not run.
const BANNED: [&str; 6] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("#[ign", "ore"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

#[test]
fn nothing_is_unfinished() {
    let mut bad = Vec::new();
    for source in rust_sources() {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = BANNED.iter().find(|word| line.contains(**word)) {
                bad.push(format!("{}:{}: {word}", source.path.display(), number + 1));
            }
        }
    }
    assert!(bad.is_empty(), "finish or remove:\n{}", bad.join("\n"));
}

#[test]
fn unsafe_code_is_in_one_crate() {
    let mut bad = Vec::new();
    for source in rust_sources().iter().filter(|s| s.crate_name() != "syscall") {
        let root = ["src/lib.rs", "src/main.rs"].iter().any(|end| source.path.ends_with(end));
        // One module of this program loads compiled code, which wasmtime executes without checks.
        let attribute = match source.path.starts_with("wasm") {
            true => "#![deny(unsafe_code)]",
            false => "#![forbid(unsafe_code)]",
        };
        if root && !source.text.contains(attribute) {
            bad.push(format!("{}: lacks {attribute}", source.path.display()));
        }
    }
    assert!(bad.is_empty(), "unsafe code belongs in crate syscall:\n{}", bad.join("\n"));
}

#[test]
fn the_licence_exists() {
    let text = std::fs::read_to_string(workspace_root().join("LICENSE")).expect("LICENSE");
    assert!(text.contains("Apache License") && text.contains("Version 2.0"));
}
