//! The lifecycle from create to delete.

use std::fs;

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    create_start_kill_delete,
    run_returns_output_and_exit_code,
    run_returns_the_signal_that_killed_it,
    a_created_container_is_deleted_without_force,
    force_deletes_running_and_missing_containers,
    a_frozen_container_is_killed,
    sigkill_reaches_a_shared_pid_namespace,
    invalid_transitions_are_refused,
    a_broken_state_hides_no_other_container,
    the_program_of_a_container_cannot_be_written,
    errors_are_logged_as_json,
    a_container_without_a_process_cannot_be_started,
);

fn create_start_kill_delete() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["create", "--pid-file", "pid", ID]).ok();
    let state = bundle.state();
    assert_eq!(state["status"], "created");
    assert_eq!((&state["ociVersion"], &state["id"]), (&json!("1.3.0"), &json!(ID)));
    assert_eq!(state["bundle"], bundle.path("").to_str().expect("UTF-8").trim_end_matches('/'));
    assert_eq!(state["annotations"], json!({"of": "the test"}));
    assert_eq!(fs::read_to_string(bundle.path("pid")).expect("pid file"), state["pid"].to_string());
    bundle.pinrun(&["start", ID]).ok();
    assert_eq!(bundle.status(), "running");
    assert_eq!(bundle.pinrun(&["list", "-q"]).ok(), format!("{ID}\n"));
    bundle.pinrun(&["kill", ID, "SIGKILL"]).ok();
    bundle.wait_until("stopped");
    assert_eq!(bundle.pid(), 0);
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
    assert_eq!(bundle.pinrun(&["list", "-q"]).ok(), "");
}

fn run_returns_output_and_exit_code() {
    let bundle = Bundle::new(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    let outcome = bundle.pinrun(&["run", ID]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (7, "out\n", "err\n"));
    bundle.assert_removed();
    assert_eq!(bundle.pinrun(&["run", "--keep", ID]).code, 7);
    assert_eq!(bundle.status(), "stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
}

fn run_returns_the_signal_that_killed_it() {
    let bundle = Bundle::new(&["sh", "-c", "echo up; exec sleep 1000"]);
    let mut child = bundle.command(&["run", ID]).stdout(std::process::Stdio::piped()).spawn().expect("pinrun");
    let mut output = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().expect("stdout is a pipe"), &mut output).expect("read the output");
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    assert_eq!(child.wait().expect("wait").code(), Some(137));
    bundle.assert_removed();
    // pinrun forwards a signal to the container.
    let bundle = Bundle::new(&["sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"]);
    let mut child = bundle.command(&["run", ID]).stdout(std::process::Stdio::piped()).spawn().expect("pinrun");
    std::io::Read::read_exact(child.stdout.as_mut().expect("stdout is a pipe"), &mut output).expect("read the output");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("kill");
    assert_eq!(child.wait().expect("wait").code(), Some(9));
    bundle.assert_removed();
}

fn a_created_container_is_deleted_without_force() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
}

fn force_deletes_running_and_missing_containers() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle.pinrun(&["delete", ID]).failed("is not stopped: running");
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.assert_removed();
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.pinrun(&["delete", ID]).failed("container does not exist");
}

fn a_frozen_container_is_killed() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle.pinrun(&["pause", ID]).ok();
    assert_eq!(bundle.status(), "paused");
    bundle.pinrun(&["kill", ID, "9"]).ok();
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
}

fn sigkill_reaches_a_shared_pid_namespace() {
    let mut bundle = Bundle::new(&["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]);
    let namespaces = bundle.spec["linux"]["namespaces"].as_array_mut().expect("namespaces is an array");
    namespaces.retain(|namespace| namespace["type"] != "pid");
    bundle.write();
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    bundle.wait_until("stopped");
    bundle.pinrun(&["kill", "--all", ID, "KILL"]).ok();
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
}

fn invalid_transitions_are_refused() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["state", ID]).failed("container does not exist");
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["create", ID]).failed("container with given ID already exists");
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["start", ID]).failed("cannot start an already running container");
    bundle.pinrun(&["kill", ID, "NOPE"]).failed("unknown signal");
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    bundle.wait_until("stopped");
    bundle.pinrun(&["kill", ID, "TERM"]).failed("container not running");
    bundle.pinrun(&["start", ID]).failed("cannot start a container that has stopped");
    bundle.pinrun(&["delete", ID]).ok();
    for id in ["", "..", "a/b", "a b"] {
        bundle.pinrun(&["create", id]).failed("invalid container ID format");
    }
}

fn a_broken_state_hides_no_other_container() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    for (id, text) in [("cut", "{\"version\":"), ("other", "{\"version\":99}"), ("empty", "")] {
        fs::create_dir(bundle.root().join(id)).expect("create a state directory");
        fs::write(bundle.root().join(id).join("state.json"), text).expect("write a state");
    }
    let listed = bundle.pinrun(&["list", "-f", "json"]);
    assert!(listed.stderr.contains("cut"), "{listed:?}");
    let listed: Vec<Value> = serde_json::from_str(&listed.ok()).expect("JSON");
    assert_eq!(listed.len(), 1);
    bundle.pinrun(&["delete", "cut"]).failed("state of container cut");
    for id in ["cut", "other", "empty"] {
        bundle.pinrun(&["delete", "-f", id]).ok();
    }
    // The record of the running container, too.
    fs::write(bundle.root().join(ID).join("state.json"), "{").expect("write a state");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.assert_removed();
}

/// A container must not be able to overwrite the runtime's program (CVE-2019-5736).
fn the_program_of_a_container_cannot_be_written() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", ID]).ok();
    // A descriptor of the program allows reopening it for writing after the program has exited (ETXTBSY until then).
    let program = fs::File::open(format!("/proc/{}/exe", bundle.pid())).expect("open the program");
    bundle.pinrun(&["delete", ID]).ok();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&program));
    let error = fs::OpenOptions::new().append(true).open(path).expect_err("the program can be opened for writing");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{error}");
    bundle.assert_removed();
}

fn errors_are_logged_as_json() {
    let bundle = Bundle::new(&["true"]);
    let log = bundle.path("log");
    let log = log.to_str().expect("UTF-8");
    let output = bundle.command(&["--log", log, "--log-format", "json", "start", ID]).output().expect("pinrun");
    Outcome::from(output).failed("container does not exist");
    let line: Value =
        serde_json::from_str(&fs::read_to_string(log).expect("read the log")).expect("parse the log line");
    assert_eq!(line["level"], "error");
    assert_eq!(line["msg"], format!("container does not exist: {ID}"));
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')));
}

fn a_container_without_a_process_cannot_be_started() {
    let mut bundle = Bundle::new(&["true"]);
    bundle.spec.as_object_mut().expect("the spec is an object").remove("process");
    bundle.write();
    bundle.pinrun(&["create", ID]).ok();
    assert_eq!(bundle.status(), "created");
    bundle.pinrun(&["start", ID]).failed("process: is missing");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.assert_removed();
    bundle.pinrun(&["run", ID]).failed("process: is missing");
    bundle.assert_removed();
}
