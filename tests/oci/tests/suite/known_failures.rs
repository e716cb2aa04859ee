//! Checks that every entry of the known failures refers to an existing case, and that pinrun has no entries.

use std::{
    env,
    io::Read,
    process::{Command, Stdio},
};

use oci_tests::{KNOWN_FAILURES, Runtime};

#[test]
fn entries_name_cases() {
    let this_binary = env::current_exe().expect("the path of the test binary");
    let directory = this_binary.parent().expect("a directory");
    // The attacks are in the other test binary of this crate.
    let attacks =
        std::fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            name.starts_with("attacks-") && !name.contains('.')
        });
    let mut list = String::new();
    for program in attacks.chain([this_binary.clone()]) {
        let mut listing =
            Command::new(program).arg("--list").stdout(Stdio::piped()).spawn().expect("run the test binary");
        listing.stdout.take().expect("stdout is a pipe").read_to_string(&mut list).expect("read the list of tests");
        // The reaper of a concurrent case may already have reaped it.
        let _ = listing.wait();
    }
    for (runtime, case, _) in KNOWN_FAILURES {
        assert_ne!(*runtime, Runtime::Pinrun, "{case}: pinrun must have no known failures");
        let test = format!("{case}::{}: test", runtime.name());
        assert!(list.lines().any(|line| line == test), "no such test: {test}");
    }
}
