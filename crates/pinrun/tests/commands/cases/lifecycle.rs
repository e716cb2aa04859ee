//! From create to delete.

use std::fs;

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = crate::cases!(
    create_start_kill_delete,
    run_gives_output_and_exit_code,
    run_gives_the_signal_that_ended_it,
    a_created_container_is_deleted_without_force,
    force_deletes_what_runs_and_what_is_not_there,
    a_frozen_container_is_killed,
    sigkill_reaches_a_shared_pid_namespace,
    what_cannot_be_is_told,
    a_broken_state_hides_nobody,
    the_program_of_a_container_cannot_be_written,
    errors_are_logged_as_json,
    without_a_process_there_is_nothing_to_start,
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
    bundle.is_gone();
    assert_eq!(bundle.pinrun(&["list", "-q"]).ok(), "");
}

fn run_gives_output_and_exit_code() {
    let bundle = Bundle::new(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    let outcome = bundle.pinrun(&["run", ID]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (7, "out\n", "err\n"));
    bundle.is_gone();
    assert_eq!(bundle.pinrun(&["run", "--keep", ID]).code, 7);
    assert_eq!(bundle.status(), "stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
}

fn run_gives_the_signal_that_ended_it() {
    let bundle = Bundle::new(&["sh", "-c", "echo up; exec sleep 1000"]);
    let mut child = bundle.command(&["run", ID]).stdout(std::process::Stdio::piped()).spawn().expect("pinrun");
    let mut said = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said).expect("it is up");
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    assert_eq!(child.wait().expect("wait").code(), Some(137));
    bundle.is_gone();
    // A signal to pinrun goes on to the container.
    let bundle = Bundle::new(&["sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"]);
    let mut child = bundle.command(&["run", ID]).stdout(std::process::Stdio::piped()).spawn().expect("pinrun");
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said).expect("it is up");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("kill");
    assert_eq!(child.wait().expect("wait").code(), Some(9));
    bundle.is_gone();
}

fn a_created_container_is_deleted_without_force() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
}

fn force_deletes_what_runs_and_what_is_not_there() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle.pinrun(&["delete", ID]).failed("is not stopped: running");
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.is_gone();
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
    bundle.is_gone();
}

fn sigkill_reaches_a_shared_pid_namespace() {
    let mut bundle = Bundle::new(&["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]);
    let namespaces = bundle.spec["linux"]["namespaces"].as_array_mut().expect("a list");
    namespaces.retain(|namespace| namespace["type"] != "pid");
    bundle.write();
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    bundle.wait_until("stopped");
    bundle.pinrun(&["kill", "--all", ID, "KILL"]).ok();
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
}

fn what_cannot_be_is_told() {
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

fn a_broken_state_hides_nobody() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    for (id, text) in [("cut", "{\"version\":"), ("other", "{\"version\":99}"), ("empty", "")] {
        fs::create_dir(bundle.root().join(id)).expect("a directory");
        fs::write(bundle.root().join(id).join("state.json"), text).expect("a state");
    }
    let listed = bundle.pinrun(&["list", "-f", "json"]);
    assert!(listed.stderr.contains("cut"), "{listed:?}");
    let listed: Vec<Value> = serde_json::from_str(&listed.ok()).expect("JSON");
    assert_eq!(listed.len(), 1);
    bundle.pinrun(&["delete", "cut"]).failed("state of container cut");
    for id in ["cut", "other", "empty"] {
        bundle.pinrun(&["delete", "-f", id]).ok();
    }
    // Its own record too.
    fs::write(bundle.root().join(ID).join("state.json"), "{").expect("a state");
    bundle.pinrun(&["delete", "-f", ID]).ok();
    bundle.is_gone();
}

/// CVE-2019-5736.
fn the_program_of_a_container_cannot_be_written() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["create", ID]).ok();
    // Whoever holds it open while it runs can open it again later, when it is not busy any more.
    let program = fs::File::open(format!("/proc/{}/exe", bundle.pid())).expect("open");
    bundle.pinrun(&["delete", ID]).ok();
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&program));
    let refused = fs::OpenOptions::new().append(true).open(again).expect_err("it can be written");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{refused}");
    bundle.is_gone();
}

fn errors_are_logged_as_json() {
    let bundle = Bundle::new(&["true"]);
    let log = bundle.path("log");
    let log = log.to_str().expect("UTF-8");
    let output = bundle.command(&["--log", log, "--log-format", "json", "start", ID]).output().expect("pinrun");
    Outcome::from(output).failed("container does not exist");
    let line: Value = serde_json::from_str(&fs::read_to_string(log).expect("a log")).expect("one line of JSON");
    assert_eq!(line["level"], "error");
    assert_eq!(line["msg"], format!("container does not exist: {ID}"));
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')));
}

fn without_a_process_there_is_nothing_to_start() {
    let mut bundle = Bundle::new(&["true"]);
    bundle.spec.as_object_mut().expect("an object").remove("process");
    bundle.write();
    bundle.pinrun(&["create", ID]).ok();
    assert_eq!(bundle.status(), "created");
    bundle.pinrun(&["start", ID]).failed("process: is missing");
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    bundle.is_gone();
    bundle.pinrun(&["run", ID]).failed("process: is missing");
    bundle.is_gone();
}
