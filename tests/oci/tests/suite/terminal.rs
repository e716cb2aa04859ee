//! Terminals: the descriptor that is sent over `--console-socket`, and the terminal in the container.

use std::{
    fs::File,
    io::{Read, Write},
};

use oci_tests::{Case, Console, each_runtime};
use serde_json::json;

each_runtime!(
    create_sends_the_terminal,
    create_without_a_socket_is_refused,
    socket_without_a_terminal_is_refused,
    missing_socket,
    size_of_the_specification,
    dev_console_is_the_terminal,
    controlling_terminal,
    hangup_reaches_the_container,
    owner_is_the_user,
    exec_sends_the_terminal,
    run_detached_with_a_terminal,
    redirected_output_has_unix_line_ends,
);

/// Reads until the output of the terminal contains `expected`. Reading fails with EIO if the other side is closed.
#[track_caller]
fn read_until(master: &mut File, expected: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains(expected) {
        match master.read(&mut buffer) {
            Ok(0) | Err(_) => panic!("the terminal was closed before {expected:?}: {text:?}"),
            Ok(n) => text.push_str(&String::from_utf8_lossy(&buffer[..n])),
        }
    }
    text
}

fn create_sends_the_terminal(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("tty; read line; echo got $line; sleep 1000");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    container.start().ok();
    assert!(read_until(&mut master, "\n").contains("/dev/"));
    master.write_all(b"hello\n").expect("write to the terminal");
    read_until(&mut master, "got hello");
    container.remove();
}

fn create_without_a_socket_is_refused(case: &Case) {
    let mut bundle = case.bundle();
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create().error_with(&["console", "terminal", "tty"]);
    case.assert_no_leftovers();
}

fn socket_without_a_terminal_is_refused(case: &Case) {
    let console = Console::listen(case);
    let container = case.container(case.bundle());
    container.create_with(&["--console-socket", console.path()]).error_with(&["console", "terminal", "tty"]);
    case.assert_no_leftovers();
}

fn missing_socket(case: &Case) {
    let mut bundle = case.bundle();
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create_with(&["--console-socket", "/nowhere/at/all"]).error_with(&[
        "/nowhere/at/all",
        "no such file",
        "connect",
    ]);
    case.assert_no_leftovers();
}

fn size_of_the_specification(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("stty size; sleep 1000");
    bundle.spec["process"]["terminal"] = json!(true);
    bundle.spec["process"]["consoleSize"] = json!({ "height": 41, "width": 123 });
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    container.start().ok();
    read_until(&mut master, "41 123");
    container.remove();
}

fn dev_console_is_the_terminal(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("stat -c %F-%a /dev/console; echo through > /dev/console; sleep 1000");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    container.start().ok();
    let text = read_until(&mut master, "through");
    assert!(text.contains("character special file"), "{text}");
    container.remove();
}

fn controlling_terminal(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("trap 'echo interrupted' INT; echo ready > /dev/tty; while :; do sleep 0.01; done");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    container.start().ok();
    read_until(&mut master, "ready");
    master.write_all(&[3]).expect("write ^C to the terminal");
    read_until(&mut master, "interrupted");
    container.remove();
}

fn hangup_reaches_the_container(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("trap 'exit 17' HUP; echo ready; while :; do sleep 0.01; done");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    let pid = container.pid();
    container.start().ok();
    read_until(&mut master, "ready");
    drop(master);
    assert_eq!(container.wait(pid), Some(17));
    container.delete().ok();
}

fn owner_is_the_user(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("stat -c %u $(tty); sleep 1000");
    bundle.spec["process"]["terminal"] = json!(true);
    bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    let container = case.container(bundle);
    container.create_with(&["--console-socket", console.path()]).ok();
    let mut master = console.master();
    container.start().ok();
    assert!(read_until(&mut master, "\n").contains("1000"));
    container.remove();
}

fn exec_sends_the_terminal(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    let console = Console::listen(case);
    let flags = ["--tty", "--detach", "--console-socket", console.path()];
    container.exec(&flags, &["/bin/sh", "-c", "tty; read line; echo got $line; sleep 1000"]).ok();
    let mut master = console.master();
    assert!(read_until(&mut master, "\n").contains("/dev/pts/"));
    master.write_all(b"hello\n").expect("write to the terminal");
    read_until(&mut master, "got hello");
    container.remove();
}

fn run_detached_with_a_terminal(case: &Case) {
    let console = Console::listen(case);
    let mut bundle = case.script("echo on the terminal; sleep 1000");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    container.call_with_bundle("run", &["--detach", "--console-socket", console.path()], |_| {}).ok();
    read_until(&mut console.master(), "on the terminal");
    container.remove();
}

/// The output of a foreground terminal is redirected to a file here.
fn redirected_output_has_unix_line_ends(case: &Case) {
    let mut bundle = case.script("printf 'one\\ntwo\\n'");
    bundle.spec["process"]["terminal"] = json!(true);
    assert_eq!(case.container(bundle).run().ok(), "one\ntwo\n");
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    assert_eq!(container.exec(&["--tty"], &["/bin/echo", "three"]).ok(), "three\n");
    container.remove();
}
