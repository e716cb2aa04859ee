//! The attacks that container runtimes have suffered, each tried as its proof of concept does.
//!
//! An attack that a runtime answers with an error has failed, too: what is checked is that the host or the limit was
//! not breached. Where it can be done, the same attack is shown to succeed on something weak, so that the check is one.

mod descriptors;
mod own_program;
mod procfs;
mod symlinks;

use std::{fs, path::PathBuf};

use oci_tests::Case;

/// A file of the host beside every bundle, which no container may reach: its path and what it holds.
fn victim(case: &Case) -> (PathBuf, &'static str) {
    const TEXT: &str = "of the host alone\n";
    let directory = case.directory().join("victim");
    fs::create_dir_all(&directory).expect("ours");
    fs::write(directory.join("file"), TEXT).expect("ours");
    (directory, TEXT)
}

/// Panics unless the victim is as it was.
#[track_caller]
fn unharmed(case: &Case) {
    let directory = case.directory().join("victim");
    let names: Vec<_> =
        fs::read_dir(&directory).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["file"], "something was made on the host");
    assert_eq!(fs::read_to_string(directory.join("file")).expect("it is there"), "of the host alone\n");
}
