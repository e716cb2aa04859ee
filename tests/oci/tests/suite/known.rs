//! The table of what is known of the peers names cases that there are, and nothing of ours.

use std::{
    env,
    io::Read,
    process::{Command, Stdio},
};

use oci_tests::{KNOWN, Runtime};

#[test]
fn entries_name_cases() {
    let own = env::current_exe().expect("this program");
    let directory = own.parent().expect("a directory");
    // The other binary of this crate beside us holds the attacks.
    let attacks =
        std::fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            name.starts_with("attacks-") && !name.contains('.')
        });
    let mut list = String::new();
    for program in attacks.chain([own.clone()]) {
        let mut listing =
            Command::new(program).arg("--list").stdout(Stdio::piped()).spawn().expect("it lists its tests");
        listing.stdout.take().expect("a pipe").read_to_string(&mut list).expect("its tests");
        // A case beside this one that reaps what containers left may have reaped it, too.
        let _ = listing.wait();
    }
    for (runtime, case, _) in KNOWN {
        assert_ne!(*runtime, Runtime::Pinrun, "{case}: ours has no excuse");
        let test = format!("{case}::{}: test", runtime.name());
        assert!(list.lines().any(|line| line == test), "no such test: {test}");
    }
}
