//! `linux.seccomp`: actions, operators, flags and the listener.

use oci_tests::{Agent, Case, each_runtime};
use serde_json::{Value, json};

each_runtime!(
    default_errno,
    errno_of_the_rule,
    kill_process,
    kill_thread,
    trap,
    log_and_allow,
    default_is_errno,
    every_operator,
    all_conditions_must_match,
    conditions_on_one_argument_are_alternatives,
    unknown_names_are_ignored,
    other_architecture,
    unknown_action_is_refused,
    unknown_operator_is_refused,
    unknown_architecture_is_refused,
    flags,
    notify,
    notify_without_a_listener_is_refused,
    exec_has_the_filter,
    without_no_new_privileges,
);

fn profile(default: &str, rules: Value) -> Value {
    json!({ "defaultAction": default, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"], "syscalls": rules })
}

/// Number of personality(2), which accepts any argument and changes only the calling process.
const PERSONALITY: &str = "135";

/// Returns the output of `probe syscall <call>` for each call, with a profile.
fn results(case: &Case, seccomp: Value, calls: &[&str]) -> Vec<String> {
    let script: Vec<String> = calls.iter().map(|call| format!("/bin/probe syscall {call}")).collect();
    let text = case.output(&script.join("; "), |bundle| bundle.spec["linux"]["seccomp"] = seccomp);
    text.lines().map(str::to_owned).collect()
}

fn denied(args: Value) -> Value {
    profile(
        "SCMP_ACT_ALLOW",
        json!([{ "names": ["personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99, "args": args }]),
    )
}

fn default_errno(case: &Case) {
    let rule = json!([{ "names": ["personality"], "action": "SCMP_ACT_ERRNO" }]);
    assert_eq!(results(case, profile("SCMP_ACT_ALLOW", rule), &["135 0"]), ["-1 1"]);
}

fn errno_of_the_rule(case: &Case) {
    assert_eq!(results(case, denied(json!([])), &["135 0"]), ["-1 99"]);
}

fn kills(case: &Case, action: &str, code: i32) {
    let mut bundle = case.bundle();
    bundle.script("/bin/probe syscall 135 0; echo $?");
    bundle.spec["linux"]["seccomp"] =
        profile("SCMP_ACT_ALLOW", json!([{ "names": ["personality"], "action": action }]));
    let outcome = case.container(bundle).run();
    assert!(outcome.ok().ends_with(&format!("{code}\n")), "{outcome:?}");
}

fn kill_process(case: &Case) {
    kills(case, "SCMP_ACT_KILL_PROCESS", 159);
}

fn kill_thread(case: &Case) {
    kills(case, "SCMP_ACT_KILL_THREAD", 159);
    kills(case, "SCMP_ACT_KILL", 159);
}

fn trap(case: &Case) {
    kills(case, "SCMP_ACT_TRAP", 159);
}

fn log_and_allow(case: &Case) {
    for action in ["SCMP_ACT_LOG", "SCMP_ACT_ALLOW"] {
        let rule = json!([{ "names": ["personality"], "action": action }]);
        assert_eq!(results(case, profile("SCMP_ACT_ALLOW", rule), &["135 0"]), ["0 0"]);
    }
}

fn default_is_errno(case: &Case) {
    let all = "read write readv writev open openat close execve exit exit_group brk mmap munmap mprotect rt_sigaction \
        rt_sigprocmask rt_sigreturn wait4 clone fork vfork set_tid_address set_robust_list rseq arch_prctl prlimit64 \
        getrandom newfstatat fstat stat lstat fcntl ioctl getpid getppid getuid geteuid getgid getegid getcwd dup dup2 \
        uname readlink readlinkat futex access faccessat faccessat2 clone3 pread64 close_range prctl capset capget setuid \
        setgid setgroups seccomp sendmsg sendto recvfrom recvmsg sched_yield epoll_ctl epoll_pwait nanosleep chdir fchdir \
        getdents64 statfs fstatfs tgkill gettid sigaltstack madvise umask setsid setrlimit fchown";
    let names: Vec<&str> = all.split_whitespace().collect();
    let mut seccomp = profile("SCMP_ACT_ERRNO", json!([{ "names": names, "action": "SCMP_ACT_ALLOW" }]));
    seccomp["defaultErrnoRet"] = json!(88);
    assert_eq!(results(case, seccomp, &["135 0"]), ["-1 88"]);
}

fn every_operator(case: &Case) {
    // Operator, value, second value, an argument that matches, and one that does not.
    let table = [
        ("SCMP_CMP_EQ", 5, 0, "5", "4"),
        ("SCMP_CMP_NE", 5, 0, "4", "5"),
        ("SCMP_CMP_LT", 5, 0, "4", "5"),
        ("SCMP_CMP_LE", 5, 0, "5", "6"),
        ("SCMP_CMP_GT", 5, 0, "6", "5"),
        ("SCMP_CMP_GE", 5, 0, "5", "4"),
        ("SCMP_CMP_MASKED_EQ", 0xf0, 0x50, "0x5f", "0x6f"),
    ];
    for (operator, value, second, yes, no) in table {
        let args = json!([{ "index": 1, "value": value, "valueTwo": second, "op": operator }]);
        // personality(2) ignores its second argument; a call such as getpriority(2) would fail without a filter.
        let calls =
            [format!("{PERSONALITY} 0 {yes}"), format!("{PERSONALITY} 0 {no}"), format!("{PERSONALITY} 0 0x100000000")];
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        let results = results(case, denied(args), &calls);
        assert_eq!(results[..2], ["-1 99", "0 0"], "{operator}");
        // All 64 bits are compared.
        let large = ["SCMP_CMP_NE", "SCMP_CMP_GT", "SCMP_CMP_GE"].contains(&operator);
        assert_eq!(results[2], if large { "-1 99" } else { "0 0" }, "{operator}");
    }
}

fn all_conditions_must_match(case: &Case) {
    let args =
        json!([{ "index": 1, "value": 5, "op": "SCMP_CMP_EQ" }, { "index": 2, "value": 6, "op": "SCMP_CMP_EQ" }]);
    assert_eq!(results(case, denied(args), &["135 0 5 6", "135 0 5 7", "135 0 4 6"]), ["-1 99", "0 0", "0 0"]);
}

fn conditions_on_one_argument_are_alternatives(case: &Case) {
    let args =
        json!([{ "index": 1, "value": 5, "op": "SCMP_CMP_EQ" }, { "index": 1, "value": 6, "op": "SCMP_CMP_EQ" }]);
    assert_eq!(results(case, denied(args), &["135 0 5", "135 0 6", "135 0 7"]), ["-1 99", "-1 99", "0 0"]);
}

fn unknown_names_are_ignored(case: &Case) {
    let rule = json!([{ "names": ["of_the_future", "personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99 }]);
    assert_eq!(results(case, profile("SCMP_ACT_ALLOW", rule), &["135 0"]), ["-1 99"]);
}

fn other_architecture(case: &Case) {
    // personality(2) is number 136 on i386; a profile of both architectures must apply to both.
    let text = case.output("/bin/probe call32 136 0", |bundle| bundle.spec["linux"]["seccomp"] = denied(json!([])));
    assert_eq!(text, "-1 99\n");
}

fn unknown_action_is_refused(case: &Case) {
    case.assert_refused(&["SCMP_ACT_NONSENSE", "action", "seccomp"], |bundle| {
        bundle.spec["linux"]["seccomp"] = profile("SCMP_ACT_NONSENSE", json!([]));
    });
}

fn unknown_operator_is_refused(case: &Case) {
    case.assert_refused(&["SCMP_CMP_NONSENSE", "operator", "seccomp"], |bundle| {
        bundle.spec["linux"]["seccomp"] = denied(json!([{ "index": 1, "value": 5, "op": "SCMP_CMP_NONSENSE" }]));
    });
}

fn unknown_architecture_is_refused(case: &Case) {
    case.assert_refused(&["SCMP_ARCH_NONSENSE", "arch", "seccomp"], |bundle| {
        let mut seccomp = denied(json!([]));
        seccomp["architectures"] = json!(["SCMP_ARCH_NONSENSE"]);
        bundle.spec["linux"]["seccomp"] = seccomp;
    });
}

fn flags(case: &Case) {
    for flag in ["SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW"] {
        let mut seccomp = denied(json!([]));
        seccomp["flags"] = json!([flag]);
        assert_eq!(results(case, seccomp, &["135 0"]), ["-1 99"], "{flag}");
    }
}

fn notify(case: &Case) {
    let agent = Agent::listen(case);
    let mut bundle = case.script("/bin/probe syscall 135 0; sleep 1000");
    let mut seccomp = profile("SCMP_ACT_ALLOW", json!([{ "names": ["personality"], "action": "SCMP_ACT_NOTIFY" }]));
    seccomp["listenerPath"] = json!(agent.path());
    seccomp["listenerMetadata"] = json!("for the agent");
    bundle.spec["linux"]["seccomp"] = seccomp;
    bundle.spec["annotations"] = json!({ "a.key": "its value" });
    let container = case.container(bundle);
    // The state is sent when the filter is loaded: at create or at start.
    container.create().ok();
    let mut start = case.command(&["start", &container.id]);
    let out = std::fs::File::create(case.directory().join("start.out")).expect("create a file");
    start.stdout(out.try_clone().expect("duplicate the descriptor")).stderr(out);
    let start = case.spawn(&mut start);
    let (state, mut descriptors) = agent.receive();
    assert!(state["ociVersion"].is_string(), "{state}");
    assert_eq!(state["fds"], json!(["seccompFd"]));
    assert_eq!(state["metadata"], "for the agent");
    assert_eq!(state["state"]["id"], container.id.as_str());
    assert_eq!(state["state"]["annotations"]["a.key"], "its value");
    assert!(state["pid"].as_i64().is_some_and(|pid| pid > 0), "{state}");
    assert_eq!(descriptors.len(), 1);
    let probe = case.directory().join("agent");
    std::fs::write(&probe, oci_tests::PROBE).expect("write a file");
    std::fs::set_permissions(&probe, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("change the mode");
    let mut agent = std::process::Command::new(&probe);
    agent.args(["agent", "1", "42"]).stdin(descriptors.remove(0)).stdout(std::process::Stdio::null());
    let agent = case.spawn(&mut agent);
    assert_eq!(case.wait(&agent), 0);
    assert_eq!(case.wait(&start), 0);
    let outputs = || {
        let files =
            std::fs::read_dir(case.directory()).expect("read the directory").flatten().map(|entry| entry.path());
        files
            .filter(|path| path.extension().is_some_and(|e| e == "out"))
            .any(|path| std::fs::read_to_string(path).unwrap_or_default().contains("-1 42"))
    };
    oci_tests::wait_until("the caller receives the agent's response", outputs);
    container.remove();
}

fn notify_without_a_listener_is_refused(case: &Case) {
    case.assert_refused(&["listenerPath", "listener", "notify"], |bundle| {
        bundle.spec["linux"]["seccomp"] =
            profile("SCMP_ACT_ALLOW", json!([{ "names": ["personality"], "action": "SCMP_ACT_NOTIFY" }]));
    });
}

fn exec_has_the_filter(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["linux"]["seccomp"] = denied(json!([]));
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec(&[], &["/bin/probe", "syscall", PERSONALITY, "0"]).ok(), "-1 99\n");
    container.remove();
}

fn without_no_new_privileges(case: &Case) {
    let text = case.output("/bin/probe syscall 135 0; grep NoNewPrivs /proc/self/status", |bundle| {
        bundle.spec["process"]["noNewPrivileges"] = json!(false);
        bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
        bundle.spec["linux"]["seccomp"] = denied(json!([]));
    });
    assert_eq!(text, "-1 99\nNoNewPrivs:\t0\n");
}
