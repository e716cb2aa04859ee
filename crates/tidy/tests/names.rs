//! Checks that modules are named after their subject: a module called `utils` attracts unrelated code.

use tidy::{rust_sources, tracked_files};

/// Names that describe no subject.
const VAGUE_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "misc", "manager", "core_utils"];

#[test]
fn files_and_directories_have_specific_names() {
    let bad: Vec<_> = tracked_files()
        .into_iter()
        .filter(|path| path.with_extension("").iter().any(|part| VAGUE_NAMES.iter().any(|name| part == *name)))
        .map(|path| path.display().to_string())
        .collect();
    assert!(bad.is_empty(), "name these after their content:\n{}", bad.join("\n"));
}

#[test]
fn modules_have_specific_names() {
    let mut bad = Vec::new();
    for source in rust_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            if let Some(name) = line.strip_prefix("mod ").map(|rest| rest.trim_end_matches([';', '{', ' ']))
                && VAGUE_NAMES.contains(&name)
            {
                bad.push(format!("{}:{}: mod {name}", source.path.display(), number + 1));
            }
        }
    }
    assert!(bad.is_empty(), "name these after their content:\n{}", bad.join("\n"));
}

#[test]
fn module_files_are_next_to_their_directory() {
    let bad: Vec<_> = rust_sources()
        .iter()
        .filter(|source| source.path.ends_with("mod.rs") && source.path.iter().any(|part| part == "src"))
        .map(|source| source.path.display().to_string())
        .collect();
    assert!(bad.is_empty(), "write `name.rs` and `name/`, not `name/mod.rs`:\n{}", bad.join("\n"));
}
