//! The budget of SPECIFICATION.md for the system calls of the runtime.

use std::{collections::HashSet, fs};

use oci_tests::{Case, Runtime};

/// Maximum number of system calls of `run` until the container executes its program, and of the runtime until it exits.
const RUN_CALLS_MAX: usize = 450;

#[test]
fn a_run_makes_few_system_calls() {
    oci_tests::run(Runtime::Pinrun, "suite::budgets::a_run_makes_few_system_calls", |case| {
        // The first call after a boot creates the staging namespace.
        case.container(case.bundle()).run().ok();
        let calls = calls_of_run(case);
        println!("system calls of a run: {calls}");
        assert!(calls <= RUN_CALLS_MAX, "{calls} system calls; at most {RUN_CALLS_MAX} (SPECIFICATION.md)");
    });
}

/// Runs a container under strace, and counts the calls of the runtime and of its children. A process that has executed
/// the program of the container belongs to the container.
fn calls_of_run(case: &Case) -> usize {
    let container = case.container(case.bundle());
    let program = container.bundle.spec["process"]["args"][0].as_str().expect("a program");
    let trace = case.directory().join("trace");
    let bundle = container.bundle.directory.to_str().expect("the path is ASCII");
    let call = case.command(&["run", "--bundle", bundle, &container.id]);
    let arguments = ["-f", "-qq", "-s", "80", "-o", trace.to_str().expect("the path is ASCII")];
    let command = std::iter::once(call.get_program()).chain(call.get_args());
    let command: Vec<&str> = command.map(|argument| argument.to_str().expect("the arguments are ASCII")).collect();
    case.program("strace", &[&arguments[..], &command].concat()).ok();
    let trace = fs::read_to_string(trace).expect("the output of strace");
    let execution = format!("execve(\"{program}\"");
    let mut of_container = HashSet::new();
    let mut calls = 0;
    for (pid, call) in trace.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim_start();
        // Not a signal, an exit, or the end of a call that was interrupted by the output of another process.
        let is_call = call.starts_with(|c: char| c.is_ascii_lowercase());
        if is_call && !of_container.contains(pid) {
            calls += 1;
        }
        if call.starts_with(&execution) {
            of_container.insert(pid);
        }
    }
    assert_eq!(of_container.len(), 1, "one process executed the program of the container");
    calls
}
