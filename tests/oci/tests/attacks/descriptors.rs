//! What a container may hold of the host: nothing but what it was given.

use std::fs;

use oci_tests::{Case, each_runtime};
use serde_json::json;

use crate::{unharmed, victim};

each_runtime!(
    cve_2024_21626_cwd,
    cve_2024_21626_cwd_by_symlink,
    cve_2024_21626_exec,
    cwd_with_dots,
    inherited_descriptors_at_run,
    inherited_descriptors_at_exec,
    what_waits_holds_no_directory_of_the_host,
);

/// Opens many descriptors of the host, inheritable, before the call.
const OPEN: &str = r#"for n in $(seq 3 60); do eval "exec $n</"; done; for n in $(seq 61 90); do eval "exec $n</etc/passwd"; done; exec "$@""#;

/// The way to the victim, if `.` is a directory of the host.
fn climb(case: &Case) -> String {
    let (directory, _) = victim(case);
    let path = directory.to_str().expect("ASCII").to_owned();
    format!("pwd; cat .{path}/file ../../../../../../../../..{path}/file 2>/dev/null; echo done")
}

fn cwd(case: &Case, of: impl Fn(u32) -> String, prepare: impl Fn(&oci_tests::Bundle, u32)) {
    let script = climb(case);
    for number in 3..16 {
        let mut bundle = case.script(&script);
        prepare(&bundle, number);
        bundle.spec["process"]["cwd"] = json!(of(number));
        let container = case.container(bundle);
        let directory = container.bundle.directory.to_str().expect("ASCII");
        let outcome = case.call_from(OPEN, &["run", "--bundle", directory, &container.id]);
        let seen = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!seen.contains("of the host alone"), "descriptor {number}: {outcome:?}");
        case.call(&["delete", "--force", &container.id]);
    }
    unharmed(case);
}

fn cve_2024_21626_cwd(case: &Case) {
    cwd(case, |number| format!("/proc/self/fd/{number}"), |_, _| {});
}

fn cve_2024_21626_cwd_by_symlink(case: &Case) {
    let link = |bundle: &oci_tests::Bundle, number| {
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), bundle.path("/link")).expect("ours");
    };
    cwd(case, |_| "/link".to_owned(), link);
}

fn cve_2024_21626_exec(case: &Case) {
    let script = climb(case);
    let container = case.container(case.script("sleep 1000"));
    container.started();
    for number in 3..16 {
        let path = format!("/proc/self/fd/{number}");
        let outcome = case.call_from(OPEN, &["exec", "--cwd", &path, &container.id, "/bin/sh", "-c", &script]);
        assert!(!outcome.stdout.contains("of the host alone"), "descriptor {number}: {outcome:?}");
    }
    container.remove();
}

fn cwd_with_dots(case: &Case) {
    let script = climb(case);
    let mut bundle = case.script(&script);
    bundle.spec["process"]["cwd"] = json!("/../../../../../..");
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("of the host alone"), "{outcome:?}");
}

/// Panics unless only standard input, output and error are open.
#[track_caller]
fn three(text: &str) {
    let numbers: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{text}");
}

fn inherited_descriptors_at_run(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/bin/probe", "fds"]);
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("ASCII");
    three(case.call_from(OPEN, &["run", "--bundle", directory, &container.id]).ok());
}

fn inherited_descriptors_at_exec(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.started();
    three(case.call_from(OPEN, &["exec", &container.id, "/bin/probe", "fds"]).ok());
    container.remove();
}

fn what_waits_holds_no_directory_of_the_host(case: &Case) {
    // Between create and start another container of the same PID namespace may look at what waits.
    let container = case.container(case.script("sleep 1000"));
    let directory = container.bundle.directory.to_str().expect("ASCII");
    case.call_from(OPEN, &["create", "--bundle", directory, &container.id]).ok();
    let pid = container.pid();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").flatten() {
        let to = fs::read_link(entry.path()).unwrap_or_default();
        assert!(!entry.path().is_dir(), "{} is {}", entry.path().display(), to.display());
    }
    container.remove();
}
