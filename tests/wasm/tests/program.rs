//! `pinion-wasm` alone: what a module sees, its exit codes, and the sandbox of the compiler.

use std::{
    fs::{self, File},
    io::Write,
    net::{TcpListener, TcpStream},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use testbed::wait_until;
use wasm_tests::{
    ARGUMENTS, COMPONENT, COMPONENT_ERROR, DEEP, ENVIRONMENT, EXIT, GROW, HELLO, HTTP_WAIT, LOOP, TABLE, TABLE_GROW,
    TRAP, binary, program, read_file, slow,
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

#[test]
fn the_compiler_has_no_privileges_and_ends_with_the_process_that_started_it() {
    let directory = directory_with(&slow(400));
    let output = File::create(directory.path().join("app.cwasm")).expect("create the code");
    let module = File::open(directory.path().join("app.wasm")).expect("open the module");
    // The shell is the parent, and is killed. It replaces descriptor 0 of what it starts in the background.
    let script = format!("exec 3<&0; {} compile --parent=$$ <&3 3<&- & wait", program().display());
    let mut shell = Command::new("sh").args(["-c", &script]).stdin(module).stdout(output).spawn().expect("start sh");
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let (mut pid, mut status) = (String::new(), String::new());
    wait_until("the compiler is in its sandbox", TIMEOUT, || {
        pid = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        field(&status, "Seccomp") == "2"
    });
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    for ids in ["Uid", "Gid"] {
        assert_eq!(field(&status, ids), ["61183"; 4].join("\t"), "{ids}");
    }
    assert_eq!([field(&status, "Groups"), field(&status, "NoNewPrivs"), field(&status, "Threads")], ["", "1", "1"]);
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("a file of the process");
    assert_eq!(file("oom_score_adj").trim(), "1000");
    let limits = file("limits");
    for limit in ["Max address space", "Max cpu time", "Max file size", "Max open files"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).expect("a limit");
        assert!(!line.contains("unlimited"), "{line}");
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count();
    assert_eq!(descriptors, 3);
    shell.kill().expect("kill the shell");
    shell.wait().expect("wait");
    wait_until("the compiler has ended", Duration::from_secs(2), || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.is_empty() || field(&status, "State").starts_with('Z')
    });
}

/// Returns a value of `/proc/<pid>/status`.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim()
}

#[test]
fn a_compiler_whose_parent_has_ended_compiles_nothing() {
    let directory = directory_with(HELLO);
    let module = File::open(directory.path().join("app.wasm")).expect("open the module");
    let output = Command::new(program()).args(["compile", "--parent=1"]).stdin(module).output().expect("run");
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert!(output.stdout.is_empty() && text(&output.stderr).contains("has ended"), "{:?}", text(&output.stderr));
}

#[test]
fn the_handler_of_a_request_ends_when_its_client_disconnects() {
    let directory = directory_with(HTTP_WAIT);
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let output = directory.path().join("output");
    let mut server = Command::new(program())
        .args(["run", &format!("--http-address={address}"), "--"])
        .arg(directory.path().join("app.wasm"))
        .stdout(File::create(&output).expect("create the output"))
        .spawn()
        .expect("start pinion-wasm");
    let lines = || fs::read_to_string(&output).expect("read the output");
    let request = || {
        let mut client = None;
        wait_until("the component listens", TIMEOUT, || {
            client = TcpStream::connect(address).ok();
            client.is_some()
        });
        let mut client = client.expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("send the request");
        client
    };
    let client = request();
    wait_until("the first handler has finished", TIMEOUT, || lines() == "started\nfinished\n");
    drop(client);
    let client = request();
    wait_until("the second handler has started", TIMEOUT, || lines() == "started\nfinished\nstarted\n");
    drop(client);
    // Longer than a handler waits.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(lines(), "started\nfinished\nstarted\n");
    server.kill().expect("kill pinion-wasm");
    server.wait().expect("wait");
}
