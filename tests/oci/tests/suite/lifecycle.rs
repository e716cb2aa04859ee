//! create, start, state, kill and delete: the states of `runtime.md`, and the operations that are errors in each of
//! them.

use std::fs;

use oci_tests::{Case, Cgroup, each_runtime};

each_runtime!(
    states_follow_each_other,
    double_create_is_refused,
    unknown_id_is_refused,
    invalid_ids_are_refused,
    created_can_be_deleted,
    running_cannot_be_deleted,
    running_cannot_be_started,
    stopped_cannot_be_started,
    stopped_cannot_be_killed,
    created_can_be_killed,
    created_dies_of_a_signal,
    created_holds_no_cgroup,
    delete_force_kills,
    delete_force_of_unknown_succeeds,
    state_has_the_required_properties,
    exit_code_of_run,
    signal_of_run,
    caller_that_ignores_sigchld,
    signals_reach_the_container,
    run_leaves_nothing,
    run_detached,
    pid_file,
    kill_by_name_and_number,
    kill_with_unknown_signal,
    kill_with_signal_0,
    program_not_found,
    program_not_executable,
    start_of_a_missing_program_fails_at_create,
    the_process_waits_for_start,
);

fn states_follow_each_other(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    assert_eq!(container.status(), "created");
    container.start().ok();
    assert_eq!(container.status(), "running");
    let pid = container.pid();
    container.kill("KILL").ok();
    assert_eq!(container.wait(pid), Some(137));
    assert_eq!(container.status(), "stopped");
    container.delete().ok();
    container.call("state", &[]).error_with(&["does not exist", "no such"]);
}

fn double_create_is_refused(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    container.create().error_with(&["exist"]);
    // The second call changed nothing.
    assert_eq!(container.status(), "created");
    container.start().ok();
    container.create().error_with(&["exist"]);
    assert_eq!(container.status(), "running");
    container.remove();
}

fn unknown_id_is_refused(case: &Case) {
    for command in ["state", "start", "delete", "pause", "resume", "ps"] {
        case.call(&[command, "nobody"]).error_with(&["nobody", "exist"]);
    }
    case.call(&["kill", "nobody", "KILL"]).error_with(&["nobody", "exist"]);
    case.call(&["exec", "nobody", "true"]).error_with(&["nobody", "exist"]);
    case.call(&["update", "--pids-limit", "10", "nobody"]).error_with(&["nobody", "exist"]);
}

fn invalid_ids_are_refused(case: &Case) {
    let mut bundle = case.bundle();
    bundle.spec["linux"]["cgroupsPath"] = serde_json::json!(Cgroup::path_of(&format!("{}bad", case.tag)));
    bundle.write();
    let directory = bundle.directory.to_str().expect("the path is ASCII");
    for id in ["../escape", "a/b", ".", "..", "", "a b", "a\nb", "ä"] {
        case.call(&["create", "--bundle", directory, id]).error();
        case.call(&["state", id]).error();
    }
    let long = "a".repeat(2000);
    case.call(&["create", "--bundle", directory, &long]).error();
    assert!(!case.directory().join("escape").exists());
}

/// Callers such as nohup and some services ignore SIGCHLD. A runtime that inherits this cannot wait for its children.
fn caller_that_ignores_sigchld(case: &Case) {
    let ignoring = |args: &[&str]| case.call_from(r#"exec env --ignore-signal=CHLD "$@""#, args);
    let mut bundle = case.script("exit 17");
    bundle.spec["hooks"]["createRuntime"] = serde_json::json!([{ "path": "/bin/cat" }]);
    let container = case.container(bundle);
    ignoring(&["run", "--bundle", container.bundle.directory.to_str().expect("the path is ASCII"), &container.id])
        .exits(17);
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    ignoring(&["exec", &container.id, "/bin/sh", "-c", "exit 18"]).exits(18);
    container.remove();
}

fn created_can_be_deleted(case: &Case) {
    // The specification requires an error, but containerd relies on the behaviour of runc.
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    let pid = container.pid();
    container.delete().ok();
    container.wait(pid);
    container.call("state", &[]).error();
}

fn running_cannot_be_deleted(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    container.delete().error_with(&["not stopped", "running", "`stopped` state"]);
    assert_eq!(container.status(), "running");
    container.remove();
}

fn running_cannot_be_started(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    container.start().error_with(&["running", "not in created", "not created", "already started", "exec.fifo"]);
    assert_eq!(container.status(), "running");
    container.remove();
}

fn stopped_cannot_be_started(case: &Case) {
    let container = case.container(case.script("true"));
    container.create().ok();
    let pid = container.pid();
    container.start().ok();
    container.wait(pid);
    container.start().error_with(&["stopped", "not running", "not in created", "exec.fifo"]);
    container.delete().ok();
}

fn stopped_cannot_be_killed(case: &Case) {
    let container = case.container(case.script("true"));
    container.create().ok();
    let pid = container.pid();
    container.start().ok();
    container.wait(pid);
    container.kill("TERM").error_with(&["not running", "stopped", "no such process"]);
    container.delete().ok();
}

fn created_can_be_killed(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    let pid = container.pid();
    container.kill("KILL").ok();
    container.wait(pid);
    assert_eq!(container.status(), "stopped");
    container.delete().ok();
}

/// The kernel does not deliver these signals to the init of a PID namespace that has no handler for them.
fn created_dies_of_a_signal(case: &Case) {
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let container = case.container(case.script("sleep 1000"));
        container.create().ok();
        let pid = container.pid();
        container.kill(signal).ok();
        container.wait(pid);
        assert_eq!(container.status(), "stopped", "{signal}");
        container.delete().ok();
    }
}

fn created_holds_no_cgroup(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    let open = fs::read_dir(format!("/proc/{}/fd", container.pid())).expect("the process is running");
    let targets: Vec<_> = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(!targets.iter().any(|path| path.ends_with("tasks") || path.ends_with("cgroup.procs")), "{targets:?}");
    container.remove();
}

fn delete_force_kills(case: &Case) {
    for start in [false, true] {
        let container = case.container(case.script("sleep 1000 & sleep 1000"));
        container.create().ok();
        let pid = container.pid();
        if start {
            container.start().ok();
        }
        container.call("delete", &["--force"]).ok();
        container.wait(pid);
        container.call("state", &[]).error();
    }
}

fn delete_force_of_unknown_succeeds(case: &Case) {
    case.call(&["delete", "--force", "nobody"]).ok();
}

fn state_has_the_required_properties(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["annotations"] = serde_json::json!({ "org.example.key": "a value", "empty": "" });
    let container = case.container(bundle);
    container.create().ok();
    let state = container.state();
    assert!(state["ociVersion"].as_str().expect("ociVersion").starts_with("1."));
    assert_eq!(state["id"], container.id.as_str());
    assert_eq!(state["status"], "created");
    assert_eq!(state["bundle"], container.bundle.directory.to_str().expect("the path is ASCII"));
    assert_eq!(state["annotations"]["org.example.key"], "a value");
    assert_eq!(state["annotations"]["empty"], "");
    let pid = state["pid"].as_i64().expect("pid");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is running");
    assert!(!stat.is_empty());
    container.remove();
}

fn exit_code_of_run(case: &Case) {
    for code in [0, 1, 7, 126, 255] {
        case.container(case.script(&format!("exit {code}"))).run().exits(code);
    }
}

fn signal_of_run(case: &Case) {
    // The first process of a PID namespace cannot kill itself with a signal, so the namespace is omitted.
    let mut bundle = case.script("kill -TERM $$; exit 3");
    bundle.without_namespace("pid");
    case.container(bundle).run().exits(143);
}

fn signals_reach_the_container(case: &Case) {
    let container =
        case.container(case.script("trap 'echo got > /got; exit 9' USR1; echo up > /up; while :; do sleep 0.01; done"));
    container.create_and_start();
    container.wait_for_line("/up");
    let pid = container.pid();
    container.kill("USR1").ok();
    assert_eq!(container.wait(pid), Some(9));
    assert_eq!(container.wait_for_line("/got"), "got");
    container.delete().ok();
}

fn run_leaves_nothing(case: &Case) {
    let container = case.container(case.script("echo hello"));
    assert_eq!(container.run().ok(), "hello\n");
    container.call("state", &[]).error();
    // The id can be used again.
    assert_eq!(container.run().ok(), "hello\n");
}

fn run_detached(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.call_with_bundle("run", &["--detach"], |_| {}).ok();
    assert_eq!(container.status(), "running");
    container.remove();
}

fn pid_file(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    let path = case.directory().join("pid");
    container.create_with(&["--pid-file", path.to_str().expect("the path is ASCII")]).ok();
    let text = fs::read_to_string(&path).expect("the pid file exists when create returns");
    // Only the number, without a newline: readers do not trim the file.
    assert_eq!(text, container.pid().to_string());
    container.remove();
}

fn kill_by_name_and_number(case: &Case) {
    for signal in ["TERM", "SIGTERM", "15", "term"] {
        let container = case.container(case.script("trap 'exit 15' TERM; echo up > /up; while :; do sleep 0.01; done"));
        container.create_and_start();
        container.wait_for_line("/up");
        let pid = container.pid();
        container.kill(signal).ok();
        assert_eq!(container.wait(pid), Some(15), "{signal}");
        container.delete().ok();
    }
}

fn kill_with_unknown_signal(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    container.kill("NOSUCH").error_with(&["signal"]);
    container.kill("12345").error_with(&["signal", "invalid argument"]);
    assert_eq!(container.status(), "running");
    container.remove();
}

/// Signal 0 of kill(2) checks whether the process exists.
fn kill_with_signal_0(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    container.kill("0").ok();
    container.start().ok();
    container.kill("0").ok();
    assert_eq!(container.status(), "running");
    let pid = container.pid();
    container.kill("KILL").ok();
    container.wait(pid);
    container.kill("0").error();
    container.delete().ok();
}

fn program_not_found(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/bin/nothing-here"]);
    let outcome = case.container(bundle).run();
    outcome.error_with(&["/bin/nothing-here", "no such file"]);
    case.assert_no_leftovers();
    let mut bundle = case.bundle();
    bundle.args(&["nothing-on-the-path"]);
    case.container(bundle).run().error_with(&["nothing-on-the-path", "not found"]);
}

fn program_not_executable(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/etc/passwd"]);
    case.container(bundle).run().error_with(&["permission denied"]);
}

fn start_of_a_missing_program_fails_at_create(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/bin/nothing-here"]);
    let container = case.container(bundle);
    // Engines rely on this: after a failed create there is nothing to delete.
    container.create().error_with(&["/bin/nothing-here", "no such file"]);
    container.call("state", &[]).error();
}

fn the_process_waits_for_start(case: &Case) {
    let container = case.container(case.script("echo ran > /ran; sleep 1000"));
    container.create().ok();
    let pid = container.pid();
    let before = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the process is running");
    assert!(!before.starts_with("/bin/sh"), "the program must not be executed before start: {before}");
    assert!(!container.bundle.path("/ran").exists());
    container.start().ok();
    assert_eq!(container.wait_for_line("/ran"), "ran");
    container.remove();
}
