//! Checks the layout of the tests of all crates: a reader who knows one crate's tests finds those of any other.

use std::{collections::BTreeSet, path::PathBuf};

use tidy::rust_sources;

/// Directory with what the test programs of one crate share.
const SHARED: &str = "node";

/// A test program is `tests/<suite>.rs`, or `tests/<suite>/main.rs` with modules next to it; what the programs of a crate
/// share is in `tests/node`, and what all crates share in crate `testbed`.
#[test]
fn tests_have_the_same_layout_in_every_crate() {
    let sources = rust_sources();
    let mut directories = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates")) {
        let parts: Vec<_> = source.path.iter().collect();
        if parts.len() > 4 && parts[2] == "tests" {
            directories.insert(parts[..4].iter().collect::<PathBuf>());
        }
    }
    let exists = |path: PathBuf| sources.iter().any(|source| source.path == path);
    let is_suite = |directory: &PathBuf| directory.ends_with(SHARED) || exists(directory.join("main.rs"));
    let bad: Vec<_> = directories.iter().filter(|directory| !is_suite(directory)).collect();
    assert!(directories.len() > 5, "only {directories:?} found: the scan is broken");
    assert!(bad.is_empty(), "neither a suite nor `{SHARED}`: {bad:?}");
}
