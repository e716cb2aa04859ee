//! `pinion-wasm` alone: what a module sees, its exit codes, and the sandbox of the compiler.

use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use testbed::wait_until;
use wasm_tests::{
    ARGUMENTS, COMPONENT, COMPONENT_ERROR, DEEP, ENVIRONMENT, EXIT, GROW, HELLO, LOOP, TABLE, TABLE_GROW, TRAP, binary,
    program, read_file,
};

const TIMEOUT: Duration = Duration::from_secs(60);

fn directory_with(module: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("app.wasm"), binary(module)).expect("write the module");
    directory
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["run", "--"]).arg(directory.join("app.wasm")).args(arguments).env_clear().stdin(Stdio::null());
    command
}

fn run(module: &str, arguments: &[&str]) -> Output {
    command(directory_with(module).path(), arguments).output().expect("run pinion-wasm")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "|")
}

/// Compiles a module to a file, as the engine does.
fn compile(directory: &Path) -> Output {
    let module = File::open(directory.join("app.wasm")).expect("open the module");
    let code = File::create(directory.join("app.cwasm")).expect("create the code");
    Command::new(program()).arg("compile").stdin(module).stdout(code).output().expect("run pinion-wasm")
}

/// Runs compiled code, without the module.
fn run_compiled(directory: &Path) -> Output {
    fs::remove_file(directory.join("app.wasm")).expect("remove the module");
    let code = File::open(directory.join("app.cwasm")).expect("open the code");
    rustix_inherit(&code);
    let number = format!("--code-fd={}", code.as_raw_fd());
    Command::new(program()).args(["run", &number, "--", "/app.wasm"]).output().expect("run pinion-wasm")
}

/// Lets children inherit a descriptor.
fn rustix_inherit(file: &File) {
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).expect("fcntl");
}

#[test]
fn a_module_has_stdio_arguments_environment_and_an_exit_code() {
    let hello = run(HELLO, &[]);
    assert_eq!((text(&hello.stdout).as_str(), hello.status.code()), ("hello from a module\n", Some(0)));
    assert_eq!(run(EXIT, &[]).status.code(), Some(42));
    assert!(text(&run(ARGUMENTS, &["one", "two"]).stdout).ends_with("/app.wasm|one|two|"));
    let directory = directory_with(ENVIRONMENT);
    let environment = command(directory.path(), &[]).env("NAME", "value").output().expect("run");
    assert!(text(&environment.stdout).contains("NAME=value|"), "{environment:?}");
}

#[test]
fn a_module_opens_files_of_its_root_and_nothing_outside() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "content\n").expect("write");
    let path = file.to_str().expect("UTF-8").trim_start_matches('/');
    assert_eq!(text(&run(&read_file(path), &[]).stdout), "content\n");
    // wasi: 44 is ENOENT, 76 ENOTCAPABLE.
    assert_eq!(run(&read_file("does/not/exist"), &[]).status.code(), Some(44));
    let outside = run(&read_file("../etc/hostname"), &[]).status.code();
    assert!(matches!(outside, Some(63 | 76)), "{outside:?}");
}

#[test]
fn traps_and_exceeded_limits_end_the_module_with_a_message() {
    for (module, message) in [(TRAP, "unreachable"), (DEEP, "call stack exhausted")] {
        let output = run(module, &[]);
        assert_eq!(output.status.code(), Some(134), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{output:?}");
    }
    assert_eq!(run(GROW, &[]).status.code(), Some(0));
    assert_eq!(run(TABLE_GROW, &[]).status.code(), Some(0));
    let table = run(TABLE, &[]);
    assert_eq!(table.status.code(), Some(126), "{table:?}");
}

#[test]
fn what_is_not_a_module_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for content in [b"#!/bin/sh\n".as_slice(), b"\0asm", b"\0asm\x01\0\0\0\xff\xff", b"\0asm\x09\0\0\0"] {
        fs::write(directory.path().join("app.wasm"), content).expect("write");
        let output = command(directory.path(), &[]).output().expect("run");
        assert_eq!(output.status.code(), Some(126), "{output:?}");
        assert!(text(&output.stderr).contains("app.wasm: "), "{output:?}");
        assert_eq!(compile(directory.path()).status.code(), Some(1));
    }
}

#[test]
fn components_are_run() {
    assert_eq!(run(COMPONENT, &[]).status.code(), Some(0));
    assert_eq!(run(COMPONENT_ERROR, &[]).status.code(), Some(1));
}

#[test]
fn compiled_code_runs_without_the_module() {
    for (module, code) in [(HELLO, 0), (EXIT, 42), (TRAP, 134), (COMPONENT, 0), (COMPONENT_ERROR, 1)] {
        let directory = directory_with(module);
        let compiled = compile(directory.path());
        assert!(compiled.status.success(), "{compiled:?}");
        let output = run_compiled(directory.path());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[test]
fn other_files_are_not_run_as_compiled_code() {
    let directory = tempfile::tempdir().expect("a directory");
    for content in [[0; 100].to_vec(), fs::read("/bin/true").expect("a program")] {
        fs::write(directory.path().join("app.wasm"), b"").expect("write");
        fs::write(directory.path().join("app.cwasm"), content).expect("write");
        let output = run_compiled(directory.path());
        assert_eq!(output.status.code(), Some(126), "{output:?}");
    }
}

/// Starts a module in a new PID namespace, as its first process.
fn start_as_init(directory: &Path) -> Child {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child"])
        .arg(program())
        .args(["run", "--"])
        .arg(directory.join("app.wasm"));
    unshare.stdin(Stdio::null()).spawn().expect("start unshare")
}

#[test]
fn sigterm_ends_an_endless_loop_also_of_the_first_process() {
    let directory = directory_with(LOOP);
    let mut child = start_as_init(directory.path());
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut pid = String::new();
    wait_until("the module uses the CPU", TIMEOUT, || {
        pid = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let used = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(11)?.parse::<u64>().ok());
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("pinion-wasm"))
            && used.is_some_and(|ticks| ticks > 20)
    });
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    assert_eq!(child.wait().expect("wait").code(), Some(143));
}

#[test]
fn the_compiler_cannot_exceed_its_limits() {
    let directory = directory_with(HELLO);
    let module = || File::open(directory.path().join("app.wasm")).expect("open");
    let limited = |limit: &str| {
        let mut command = Command::new(program());
        command.args(["compile", limit]).stdin(module()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("run")
    };
    assert!(limited("--memory=4000000000").success());
    let status = limited("--memory=10000000");
    assert!(!status.success() || status.signal().is_some(), "{status:?}");
}
