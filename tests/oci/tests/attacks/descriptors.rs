//! Attacks through descriptors and working directories of the host that leak into the container.

use std::fs;

use oci_tests::{Case, each_runtime};
use serde_json::json;

use crate::{assert_victim_unchanged, victim};

each_runtime!(
    cve_2024_21626_cwd,
    cve_2024_21626_cwd_by_symlink,
    cve_2024_21626_exec,
    cwd_with_dots,
    inherited_descriptors_at_run,
    inherited_descriptors_at_exec,
    created_container_holds_no_host_directory,
);

/// Opens many inheritable descriptors of the host before the call.
const OPEN: &str = r#"for n in $(seq 3 60); do eval "exec $n</"; done; for n in $(seq 61 90); do eval "exec $n</etc/passwd"; done; exec "$@""#;

/// Returns a script that reads the victim if `.` is a directory of the host.
fn escape_script(case: &Case) -> String {
    let (directory, _) = victim(case);
    let path = directory.to_str().expect("the path is ASCII").to_owned();
    format!("pwd; cat .{path}/file ../../../../../../../../..{path}/file 2>/dev/null; echo done")
}

/// Runs containers whose working directories refer to descriptors 3 to 15, after changing the bundle with `prepare`.
fn cwd_attack(case: &Case, cwd: impl Fn(u32) -> String, prepare: impl Fn(&oci_tests::Bundle, u32)) {
    let script = escape_script(case);
    for number in 3..16 {
        let mut bundle = case.script(&script);
        prepare(&bundle, number);
        bundle.spec["process"]["cwd"] = json!(cwd(number));
        let container = case.container(bundle);
        let directory = container.bundle.directory.to_str().expect("the path is ASCII");
        let outcome = case.call_from(OPEN, &["run", "--bundle", directory, &container.id]);
        let output = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!output.contains("secret of the host"), "descriptor {number}: {outcome:?}");
        case.call(&["delete", "--force", &container.id]);
    }
    assert_victim_unchanged(case);
}

fn cve_2024_21626_cwd(case: &Case) {
    cwd_attack(case, |number| format!("/proc/self/fd/{number}"), |_, _| {});
}

fn cve_2024_21626_cwd_by_symlink(case: &Case) {
    let link = |bundle: &oci_tests::Bundle, number| {
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), bundle.path("/link")).expect("create a symlink");
    };
    cwd_attack(case, |_| "/link".to_owned(), link);
}

fn cve_2024_21626_exec(case: &Case) {
    let script = escape_script(case);
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    for number in 3..16 {
        let path = format!("/proc/self/fd/{number}");
        let outcome = case.call_from(OPEN, &["exec", "--cwd", &path, &container.id, "/bin/sh", "-c", &script]);
        assert!(!outcome.stdout.contains("secret of the host"), "descriptor {number}: {outcome:?}");
    }
    container.remove();
}

fn cwd_with_dots(case: &Case) {
    let script = escape_script(case);
    let mut bundle = case.script(&script);
    bundle.spec["process"]["cwd"] = json!("/../../../../../..");
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("secret of the host"), "{outcome:?}");
}

/// Panics unless only standard input, output and error are open.
#[track_caller]
fn assert_only_stdio(text: &str) {
    let numbers: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{text}");
}

fn inherited_descriptors_at_run(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/bin/probe", "fds"]);
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII");
    assert_only_stdio(case.call_from(OPEN, &["run", "--bundle", directory, &container.id]).ok());
}

fn inherited_descriptors_at_exec(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    assert_only_stdio(case.call_from(OPEN, &["exec", &container.id, "/bin/probe", "fds"]).ok());
    container.remove();
}

fn created_container_holds_no_host_directory(case: &Case) {
    // Between create and start, another container of the same PID namespace can look at the waiting process.
    let container = case.container(case.script("sleep 1000"));
    let directory = container.bundle.directory.to_str().expect("the path is ASCII");
    case.call_from(OPEN, &["create", "--bundle", directory, &container.id]).ok();
    let pid = container.pid();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is running").flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        assert!(!entry.path().is_dir(), "{} is {}", entry.path().display(), target.display());
    }
    container.remove();
}
