//! Attacks on container runtimes that succeeded in the past, each run like its proof of concept.
//!
//! An attack that a runtime refuses with an error has failed too: the cases check that the host or the limit was not
//! breached. Where possible, the same attack is shown to succeed on an unprotected program, which validates the check.

mod descriptors;
mod procfs;
mod runtime_process;
mod symlinks;

use std::{fs, path::PathBuf};

use oci_tests::Case;

/// Creates a file of the host that no container may reach. Returns its directory and its content.
fn victim(case: &Case) -> (PathBuf, &'static str) {
    const TEXT: &str = "secret of the host\n";
    let directory = case.directory().join("victim");
    fs::create_dir_all(&directory).expect("create a directory");
    fs::write(directory.join("file"), TEXT).expect("write a file");
    (directory, TEXT)
}

/// Panics unless the file and its directory are unchanged.
#[track_caller]
fn assert_victim_unchanged(case: &Case) {
    let directory = case.directory().join("victim");
    let names: Vec<_> =
        fs::read_dir(&directory).expect("read the directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["file"], "the container created files on the host");
    assert_eq!(fs::read_to_string(directory.join("file")).expect("the file exists"), "secret of the host\n");
}
