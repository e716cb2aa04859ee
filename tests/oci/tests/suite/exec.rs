//! `exec`: another process in a running container, with every flag.

use std::fs;

use oci_tests::{Case, Cgroup, Container, each_runtime, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

each_runtime!(
    exit_codes,
    signals,
    program_not_found,
    program_not_executable,
    joins_every_namespace,
    joins_the_cgroup,
    inherits_the_container_environment,
    environment_flag,
    cwd_flag,
    cwd_defaults_to_the_containers,
    user_flag,
    additional_gids,
    capability_flag,
    capability_flag_of_a_user,
    capabilities_default_to_the_containers,
    no_new_privileges_flag,
    process_file,
    process_file_with_credentials,
    process_file_with_soft_and_hard_limit,
    process_file_with_umask,
    process_file_with_oom_score,
    invalid_process_files_are_refused,
    detached,
    pid_file,
    preserved_descriptors,
    in_a_stopped_container,
    in_a_created_container,
    seccomp_and_limits_hold,
    stdin_is_passed_on,
    many_at_once,
    home_is_set,
    ignores_console_without_a_terminal,
    cgroup_of_one_controller,
);

/// Starts a container that only sleeps.
fn sleeper(case: &Case) -> Container<'_> {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    container
}

fn exit_codes(case: &Case) {
    let container = sleeper(case);
    for code in (0..=255).step_by(51).chain([1, 126, 127]) {
        container.exec(&[], &["/bin/sh", "-c", &format!("exit {code}")]).exits(code);
    }
    container.remove();
}

fn signals(case: &Case) {
    let container = sleeper(case);
    container.exec(&[], &["/bin/sh", "-c", "kill -KILL $$"]).exits(137);
    container.exec(&[], &["/bin/sh", "-c", "kill -TERM $$"]).exits(143);
    container.remove();
}

fn program_not_found(case: &Case) {
    let container = sleeper(case);
    for program in ["/bin/nothing-here", "nothing-here"] {
        let outcome = container.exec(&[], &[program]);
        outcome.error_with(&["nothing-here", "no such file", "not found"]);
        assert!([1, 127, 255].contains(&outcome.code), "{outcome:?}");
    }
    container.remove();
}

fn program_not_executable(case: &Case) {
    let container = sleeper(case);
    let outcome = container.exec(&[], &["/etc/passwd"]);
    outcome.error_with(&["permission denied"]);
    assert!([1, 126, 255].contains(&outcome.code), "{outcome:?}");
    container.remove();
}

fn joins_every_namespace(case: &Case) {
    let container = sleeper(case);
    let pid = container.pid();
    for kind in ["pid", "net", "ipc", "uts", "mnt", "cgroup", "user"] {
        let inside = container.exec_script(&format!("readlink /proc/self/ns/{kind}"));
        let first = fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("the process is running");
        assert_eq!(inside.trim(), first.to_str().expect("the path is ASCII"), "{kind}");
    }
    container.remove();
}

fn joins_the_cgroup(case: &Case) {
    let container = sleeper(case);
    let path = case.directory().join("exec.pid");
    container
        .exec(&["--detach", "--pid-file", path.to_str().expect("the path is ASCII")], &["/bin/sleep", "1000"])
        .ok();
    let pid: i32 = fs::read_to_string(&path).expect("a pid").parse().expect("a number");
    let lines = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process is running");
    assert_eq!(lines(pid), lines(container.pid()));
    assert!(container.cgroup().processes().contains(&pid));
    // Deleting the container also kills the exec'd process.
    container.call("delete", &["--force"]).ok();
    container.wait(pid);
    assert!(Cgroup::new(&Cgroup::path_of(&container.id)).directories().is_empty());
}

fn inherits_the_container_environment(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["env"].as_array_mut().expect("env").push(json!("FROM_SPEC=yes"));
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec_script("echo $FROM_SPEC"), "yes\n");
    container.remove();
}

fn environment_flag(case: &Case) {
    let container = sleeper(case);
    let outcome = container.exec(&["--env", "A=1", "--env", "B=two words"], &["/bin/sh", "-c", "echo $A-$B"]);
    assert_eq!(outcome.ok(), "1-two words\n");
    container.remove();
}

fn cwd_flag(case: &Case) {
    let container = sleeper(case);
    assert_eq!(container.exec(&["--cwd", "/home/user"], &["/bin/pwd"]).ok(), "/home/user\n");
    container.exec(&["--cwd", "relative"], &["/bin/pwd"]).error();
    container.remove();
}

fn cwd_defaults_to_the_containers(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["cwd"] = json!("/home/user");
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec_script("pwd"), "/home/user\n");
    container.remove();
}

fn user_flag(case: &Case) {
    let container = sleeper(case);
    let id =
        |user: &str| container.exec(&["--user", user], &["/bin/sh", "-c", "echo $(id -u):$(id -g)"]).ok().to_owned();
    assert_eq!(id("1000:2000"), "1000:2000\n");
    assert_eq!(id("65534"), "65534:0\n");
    container.exec(&["--user", "-5"], &["/bin/true"]).error();
    container.remove();
}

fn additional_gids(case: &Case) {
    let container = sleeper(case);
    let flags: &[&str] = match case.runtime {
        // crun does not have the flag.
        oci_tests::Runtime::Crun => return container.remove(),
        _ => &["--user", "1000:1000", "--additional-gids", "2000", "--additional-gids", "3000"],
    };
    let groups = container.exec(flags, &["/bin/sh", "-c", "grep Groups: /proc/self/status"]).ok().to_owned();
    assert_eq!(groups.split_whitespace().collect::<Vec<_>>(), ["Groups:", "2000", "3000"]);
    container.remove();
}

fn effective(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("CapEff is in /proc/self/status");
    u64::from_str_radix(line.trim(), 16).expect("hexadecimal")
}

fn capability_flag(case: &Case) {
    let container = sleeper(case);
    let before = effective(&container.exec_script("cat /proc/self/status"));
    let with = container.exec(&["--cap", "CAP_NET_ADMIN"], &["/bin/cat", "/proc/self/status"]);
    assert_eq!(effective(with.ok()), before | 1 << 12);
    container.remove();
}

fn capability_flag_of_a_user(case: &Case) {
    let container = sleeper(case);
    let with = container.exec(&["--cap", "CAP_NET_ADMIN", "--user", "1000"], &["/bin/cat", "/proc/self/status"]);
    assert_eq!(effective(with.ok()), 1 << 12, "the capability must be effective after execve: {}", with.stdout);
    container.remove();
}

fn capabilities_default_to_the_containers(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.capabilities(&["CAP_KILL"]);
    let container = case.container(bundle);
    container.create_and_start();
    let text = container.exec_script("cat /proc/self/status");
    assert_eq!(effective(&text), 1 << 5);
    for set in ["CapPrm", "CapBnd"] {
        assert!(text.contains(&format!("{set}:\t0000000000000020")), "{text}");
    }
    container.remove();
}

fn no_new_privileges_flag(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["noNewPrivileges"] = json!(false);
    let container = case.container(bundle);
    container.create_and_start();
    let value =
        |flags: &[&str]| container.exec(flags, &["/bin/grep", "NoNewPrivs", "/proc/self/status"]).ok().to_owned();
    assert_eq!(value(&[]), "NoNewPrivs:\t0\n");
    assert_eq!(value(&["--no-new-privs"]), "NoNewPrivs:\t1\n");
    container.remove();
}

/// Calls `exec --process` with a complete `process` object.
fn exec_process_file(container: &Container, process: &Value) -> oci_tests::Outcome {
    let path = container.case.file("process.json", &process.to_string());
    container.case.call(&["exec", "--process", &path, &container.id])
}

fn process_file(case: &Case) {
    let container = sleeper(case);
    let process = json!({ "args": ["/bin/sh", "-c", "pwd; id -u; echo $X; exit 5"], "cwd": "/tmp", "env": ["PATH=/bin", "X=y"],
        "user": { "uid": 1000, "gid": 1000 } });
    let outcome = exec_process_file(&container, &process);
    outcome.exits(5);
    assert_eq!(outcome.stdout, "/tmp\n1000\ny\n");
    container.remove();
}

fn process_file_with_credentials(case: &Case) {
    let container = sleeper(case);
    let script = "id -u; id -g; grep -E '^(Groups|NoNewPrivs|CapEff|CapBnd|CapAmb)' /proc/self/status; \
        grep 'open files' /proc/self/limits";
    let process = json!({
        "args": ["/bin/sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"],
        "user": { "uid": 7, "gid": 8, "additionalGids": [2000] },
        "noNewPrivileges": true,
        "capabilities": { "bounding": ["CAP_KILL", "CAP_CHOWN"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"],
            "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL"] },
        "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 200, "hard": 200 }],
    });
    let outcome = exec_process_file(&container, &process);
    let words: Vec<&str> = outcome.ok().split_whitespace().collect();
    #[rustfmt::skip]
    assert_eq!(words, [
        "7", "8", "Groups:", "2000", "CapEff:", "0000000000000020", "CapBnd:", "0000000000000021", "CapAmb:",
        "0000000000000020", "NoNewPrivs:", "1", "Max", "open", "files", "200", "200", "files",
    ]);
    container.remove();
}

fn process_file_with_soft_and_hard_limit(case: &Case) {
    let container = sleeper(case);
    let process = json!({ "args": ["/bin/sh", "-c", "grep core /proc/self/limits"], "cwd": "/", "env": ["PATH=/bin"],
        "rlimits": [{ "type": "RLIMIT_CORE", "soft": 100, "hard": 200 }] });
    let words: Vec<String> =
        exec_process_file(&container, &process).ok().split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[4..6], ["100", "200"]);
    container.remove();
}

fn process_file_with_umask(case: &Case) {
    let container = sleeper(case);
    let process = json!({ "args": ["/bin/sh", "-c", "umask"], "cwd": "/", "user": { "umask": 0o077 } });
    assert_eq!(exec_process_file(&container, &process).ok(), "0077\n");
    container.remove();
}

fn process_file_with_oom_score(case: &Case) {
    let container = sleeper(case);
    let process = json!({ "args": ["/bin/cat", "/proc/self/oom_score_adj"], "cwd": "/", "oomScoreAdj": 500 });
    assert_eq!(exec_process_file(&container, &process).ok(), "500\n");
    container.remove();
}

fn invalid_process_files_are_refused(case: &Case) {
    let container = sleeper(case);
    for text in ["", "{", "[]", r#"{"args":[]}"#, r#"{"args":"sh"}"#] {
        let path = case.file("process.json", text);
        case.call(&["exec", "--process", &path, &container.id]).error();
    }
    case.call(&["exec", "--process", "/nowhere.json", &container.id]).error_with(&["nowhere.json", "no such file"]);
    assert_eq!(container.status(), "running");
    container.remove();
}

fn detached(case: &Case) {
    let container = sleeper(case);
    container.exec(&["--detach"], &["/bin/sh", "-c", "echo started > /started; sleep 1000"]).ok();
    assert_eq!(container.wait_for_line("/started"), "started");
    container.remove();
}

fn pid_file(case: &Case) {
    let container = sleeper(case);
    let path = case.directory().join("exec.pid");
    container
        .exec(&["--detach", "--pid-file", path.to_str().expect("the path is ASCII")], &["/bin/sleep", "1000"])
        .ok();
    let pid =
        Pid::from_raw(fs::read_to_string(&path).expect("a pid").parse().expect("a number")).expect("the pid is not 0");
    let line = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    wait_until("the program is executed", || fs::read(&line).is_ok_and(|text| text == b"/bin/sleep\x001000\0"));
    kill_process(pid, Signal::KILL).expect("kill the process");
    assert_eq!(container.wait(pid.as_raw_nonzero().get()), Some(137), "the process must be reparented to the caller");
    container.remove();
}

fn preserved_descriptors(case: &Case) {
    let container = sleeper(case);
    // The caller's descriptors 3 and 4 are passed on; 5 is not.
    let exec = case.command(&["exec", "--preserve-fds", "2", &container.id, "/bin/probe", "fds"]);
    let call: Vec<&str> = std::iter::once(exec.get_program())
        .chain(exec.get_args())
        .map(|word| word.to_str().expect("the path is ASCII"))
        .collect();
    let script = r#"exec 3</etc/passwd 4</etc/passwd 5</etc/passwd; exec "$@""#;
    let outcome = case.program("sh", &[&["-c", script, "sh"], call.as_slice()].concat());
    let numbers: Vec<&str> = outcome.ok().lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["0", "1", "2", "3", "4"], "{}", outcome.stdout);
    container.remove();
}

fn in_a_stopped_container(case: &Case) {
    let container = sleeper(case);
    let pid = container.pid();
    container.kill("KILL").ok();
    container.wait(pid);
    container.exec(&[], &["/bin/true"]).error_with(&["stopped", "not running"]);
    container.delete().ok();
}

fn in_a_created_container(case: &Case) {
    // The specification does not mention this; runc and crun allow exec in a created container.
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    assert_eq!(container.exec(&[], &["/bin/echo", "early"]).ok(), "early\n");
    assert_eq!(container.status(), "created");
    container.remove();
}

fn seccomp_and_limits_hold(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }] });
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec_script("grep Seccomp: /proc/self/status"), "Seccomp:\t2\n");
    assert_eq!(container.exec(&[], &["/bin/probe", "syscall", "83", "@/x", "0"]).ok(), "-1 77\n");
    container.remove();
}

fn stdin_is_passed_on(case: &Case) {
    let container = sleeper(case);
    let input = fs::File::open(case.file("input", "from outside\n")).expect("the file was written");
    let outcome = case.call_with(&["exec", &container.id, "/bin/cat"], |command| {
        command.stdin(input);
    });
    assert_eq!(outcome.ok(), "from outside\n");
    container.remove();
}

fn many_at_once(case: &Case) {
    let container = sleeper(case);
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let mut command = case.command(&["exec", &container.id, "/bin/sh", "-c", &format!("exit {n}")]);
            case.spawn(&mut command)
        })
        .collect();
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(case.wait(call), n as i32);
    }
    container.remove();
}

fn home_is_set(case: &Case) {
    let container = sleeper(case);
    let outcome = container.exec(&["--user", "1000:1000"], &["/bin/sh", "-c", "echo $HOME"]);
    assert_eq!(outcome.ok(), "/home/user\n");
    container.remove();
}

fn ignores_console_without_a_terminal(case: &Case) {
    let container = sleeper(case);
    let outcome = container.exec(&["--console-socket", "/nowhere"], &["/bin/true"]);
    // Success and failure are both valid; the call must not hang or break the container.
    assert!(outcome.code == 0 || !outcome.stderr.is_empty());
    assert_eq!(container.status(), "running");
    container.remove();
}

/// `--cgroup CONTROLLER:PATH` with cgroup v1: in the other trees the process is in the cgroup of the container.
fn cgroup_of_one_controller(case: &Case) {
    if case.runtime == oci_tests::Runtime::Crun
        || !fs::exists("/sys/fs/cgroup/pids/cgroup.procs").expect("look up the cgroup tree")
    {
        return; // crun does not have the flag for v1.
    }
    let container = sleeper(case);
    let path = Cgroup::path_of(&container.id);
    let below = format!("/sys/fs/cgroup/pids{path}/below");
    fs::create_dir(&below).expect("create a child cgroup");
    let text = container.exec(&["--cgroup", "pids:below"], &["/bin/cat", "/proc/self/cgroup"]).ok().to_owned();
    let tree = |name: &str| {
        text.lines().find(|line| line.contains(&format!(":{name}:"))).expect("a line of the tree").to_owned()
    };
    assert!(tree("pids").ends_with("/below"), "{text}");
    assert!(!tree("memory").ends_with("/below"), "{text}");
    container.exec(&["--cgroup", "nothing:below"], &["/bin/true"]).error_with(&["nothing"]);
    fs::remove_dir(&below).expect("the child cgroup is empty");
    container.remove();
}
