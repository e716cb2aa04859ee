//! `process`: its properties, checked in the container with the kernel.

use oci_tests::{Case, each_runtime};
use serde_json::json;

each_runtime!(
    arguments_and_environment,
    path_is_searched,
    working_directory,
    working_directory_is_created,
    user_and_groups,
    keep_original_groups,
    umask,
    default_umask,
    capability_sets,
    ambient_capabilities,
    no_capabilities,
    unknown_capability_is_ignored,
    capabilities_that_root_lacks,
    no_new_privileges,
    resource_limits,
    oom_score,
    io_priority,
    scheduler_batch,
    default_scheduler,
    cpu_affinity_of_exec,
    cpu_affinity_of_the_caller,
    personality,
    memory_policy,
    policies_apply_to_exec,
    empty_labels_are_ignored,
    stdin_is_passed_on,
    only_stdio_is_open,
    preserved_descriptors,
    home_is_set,
    empty_home_is_replaced,
    duplicate_variables,
    no_process_of_the_runtime_is_inside,
);

fn arguments_and_environment(case: &Case) {
    let text = case.output("echo \"$0|$A|$B|$C\"; env | grep -c ^A=", |bundle| {
        bundle.args(&["/bin/sh", "-c", "echo \"$0|$A|$B\"", "zero"]);
        bundle.spec["process"]["env"] = json!(["PATH=/bin", "A=1", "B=two = 2"]);
    });
    assert_eq!(text, "zero|1|two = 2\n");
}

fn path_is_searched(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["echo", "found"]);
        bundle.spec["process"]["env"] = json!(["PATH=/nowhere:/bin"]);
    });
    assert_eq!(text, "found\n");
}

fn working_directory(case: &Case) {
    assert_eq!(case.output("pwd", |bundle| bundle.spec["process"]["cwd"] = json!("/home/user")), "/home/user\n");
}

fn working_directory_is_created(case: &Case) {
    assert_eq!(case.output("pwd", |bundle| bundle.spec["process"]["cwd"] = json!("/made/by/it")), "/made/by/it\n");
}

fn user_and_groups(case: &Case) {
    let text = case.output("id -u; id -g; grep Groups /proc/self/status", |bundle| {
        bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1001, "additionalGids": [5, 2000] });
    });
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1000", "1001", "Groups:", "5", "2000"]);
}

fn umask(case: &Case) {
    let text =
        case.output("umask", |bundle| bundle.spec["process"]["user"] = json!({ "uid": 0, "gid": 0, "umask": 0o27 }));
    assert_eq!(text, "0027\n");
}

fn default_umask(case: &Case) {
    assert_eq!(case.output("umask", |_| {}), "0022\n");
}

/// Returns the capability set `name` of the text of `/proc/self/status`.
fn capability_set(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the set is in /proc/self/status");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("hexadecimal")
}

fn capability_sets(case: &Case) {
    let text = case.output("cat /proc/self/status", |bundle| {
        bundle.spec["process"]["capabilities"] = json!({
            "bounding": ["CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW"], "permitted": ["CAP_CHOWN", "CAP_KILL"],
            "effective": ["CAP_KILL"], "inheritable": [], "ambient": [] });
        bundle.args(&["/bin/cat", "/proc/self/status"]);
    });
    // execve(2) of root adds the bounding set to the permitted and effective sets, so those are not checked.
    assert_eq!(capability_set(&text, "CapBnd"), 1 | 1 << 5 | 1 << 13);
    assert_eq!(capability_set(&text, "CapAmb"), 0);
    assert_eq!(capability_set(&text, "CapInh"), 0);
}

fn ambient_capabilities(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/cat", "/proc/self/status"]);
        bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
        let one = ["CAP_NET_BIND_SERVICE"];
        bundle.spec["process"]["capabilities"] =
            json!({ "bounding": one, "permitted": one, "effective": one, "inheritable": one, "ambient": one });
    });
    for set in ["CapAmb", "CapEff", "CapPrm", "CapInh", "CapBnd"] {
        assert_eq!(capability_set(&text, set), 1 << 10, "{set}");
    }
}

fn no_capabilities(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/cat", "/proc/self/status"]);
        bundle.spec["process"]["capabilities"] = json!({});
    });
    for set in ["CapAmb", "CapEff", "CapPrm", "CapInh", "CapBnd"] {
        assert_eq!(capability_set(&text, set), 0, "{set}");
    }
}

fn unknown_capability_is_ignored(case: &Case) {
    // runc and crun warn and continue: an engine may name capabilities newer than the kernel.
    case.output("true", |bundle| {
        bundle.capabilities(&["CAP_CHOWN", "CAP_OF_THE_FUTURE"]);
    });
}

fn capabilities_that_root_lacks(case: &Case) {
    // Root of this machine may lack capabilities; a container that requests them gets the available ones.
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/cat", "/proc/self/status"]);
        bundle.capabilities(&["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN"]);
    });
    assert_eq!(capability_set(&text, "CapEff") & (1 | 1 << 21), 1 | 1 << 21);
}

fn no_new_privileges(case: &Case) {
    for (value, word) in [(true, "1"), (false, "0")] {
        let text = case.output("grep NoNewPrivs /proc/self/status", |bundle| {
            bundle.spec["process"]["noNewPrivileges"] = json!(value);
        });
        assert_eq!(text, format!("NoNewPrivs:\t{word}\n"));
    }
}

fn resource_limits(case: &Case) {
    let text = case.output("cat /proc/self/limits", |bundle| {
        bundle.spec["process"]["rlimits"] = json!([
            { "type": "RLIMIT_CORE", "soft": 0, "hard": 4096 }, { "type": "RLIMIT_CPU", "soft": 100, "hard": 200 },
            { "type": "RLIMIT_MSGQUEUE", "soft": 1000, "hard": 1000 }, { "type": "RLIMIT_NICE", "soft": 0, "hard": 0 },
            { "type": "RLIMIT_STACK", "soft": 1_048_576, "hard": 2_097_152 },
        ]);
    });
    let limit = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the limit is in /proc/self/limits");
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(limit("Max core file size"), "0 4096");
    assert_eq!(limit("Max cpu time"), "100 200");
    assert_eq!(limit("Max msgqueue size"), "1000 1000");
    assert_eq!(limit("Max nice priority"), "0 0");
    assert_eq!(limit("Max stack size"), "1048576 2097152");
}

fn oom_score(case: &Case) {
    let text = case.output("cat /proc/self/oom_score_adj", |bundle| bundle.spec["process"]["oomScoreAdj"] = json!(321));
    assert_eq!(text, "321\n");
}

fn io_priority(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "ioprio"]);
        bundle.spec["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_BE", "priority": 6 });
    });
    assert_eq!(text, "2 6\n");
}

fn scheduler_batch(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "scheduler"]);
        bundle.spec["process"]["scheduler"] = json!({ "policy": "SCHED_BATCH", "nice": 7 });
    });
    assert!(text.starts_with("3 7 0 "), "{text}");
}

fn default_scheduler(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "scheduler"]);
    });
    assert!(text.starts_with("0 0 0 "), "{text}");
}

fn cpu_affinity_of_exec(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["execCPUAffinity"] = json!({ "initial": "0", "final": "0" });
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec(&[], &["/bin/probe", "affinity"]).ok(), "1\n");
    let process = json!({ "args": ["/bin/probe", "affinity"], "cwd": "/", "env": [] });
    let path = case.file("process.json", &process.to_string());
    assert_eq!(
        case.call(&["exec", "--process", &path, &container.id]).ok(),
        "1\n",
        "a process file without execCPUAffinity"
    );
    container.remove();
}

fn cpu_affinity_of_the_caller(case: &Case) {
    let all_cpus = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "affinity"]);
    });
    let mut bundle = case.script("/bin/probe affinity > /first; sleep 1000");
    bundle.spec["linux"]["resources"]["cpu"] = json!({});
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII").to_owned();
    let confined = |args: &[&str]| case.call_from(r#"exec taskset -c 0 "$@""#, args);
    confined(&["create", "--bundle", &directory, &container.id]).ok();
    container.start().ok();
    assert_eq!(
        format!("{}\n", container.wait_for_line("/first")),
        all_cpus,
        "the container must not inherit the affinity"
    );
    assert_eq!(
        confined(&["exec", &container.id, "/bin/probe", "affinity"]).ok(),
        all_cpus,
        "exec must not inherit the affinity"
    );
    container.remove();
}

fn personality(case: &Case) {
    let text = case.output("uname -m; cat /proc/self/personality", |bundle| {
        bundle.spec["linux"]["personality"] = json!({ "domain": "LINUX32" });
    });
    assert!(text.contains("i686"), "{text}");
}

fn memory_policy(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "mempolicy"]);
        bundle.spec["linux"]["memoryPolicy"] =
            json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"] });
    });
    assert_eq!(text, "32770 1\n");
}

fn policies_apply_to_exec(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["linux"]["personality"] = json!({ "domain": "LINUX32" });
    bundle.spec["linux"]["memoryPolicy"] =
        json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"] });
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.exec(&[], &["/bin/uname", "-m"]).ok(), "i686\n");
    assert_eq!(container.exec(&[], &["/bin/probe", "mempolicy"]).ok(), "32770 1\n");
    container.remove();
}

/// An annotation of crun that Podman uses for `--group-add keep-groups`; runc does not have it.
fn keep_original_groups(case: &Case) {
    let mut bundle = case.script("grep Groups: /proc/self/status > /first; sleep 1000");
    bundle.spec["annotations"]["run.oci.keep_original_groups"] = json!("1");
    bundle.spec["process"]["user"]["additionalGids"] = json!([2000]);
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII").to_owned();
    let with_groups = |args: &[&str]| case.call_from(r#"exec setpriv --groups 4711,4712 "$@""#, args);
    with_groups(&["create", "--bundle", &directory, &container.id]).ok();
    container.start().ok();
    let groups = |line: &str| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(groups(&container.wait_for_line("/first")), ["4711", "4712"]);
    let outcome = with_groups(&["exec", &container.id, "/bin/grep", "Groups:", "/proc/self/status"]);
    assert_eq!(groups(outcome.ok()), ["4711", "4712"]);
    container.remove();
}

fn empty_labels_are_ignored(case: &Case) {
    // Engines on machines without AppArmor or SELinux send empty strings.
    case.output("true", |bundle| {
        bundle.spec["process"]["apparmorProfile"] = json!("");
        bundle.spec["process"]["selinuxLabel"] = json!("");
        bundle.spec["linux"]["mountLabel"] = json!("");
    });
}

fn stdin_is_passed_on(case: &Case) {
    let input = std::fs::File::open(case.file("input", "from outside\n")).expect("the file was written");
    let mut bundle = case.bundle();
    bundle.args(&["/bin/cat"]);
    let outcome = case.container(bundle).call_with_bundle("run", &[], |command| {
        command.stdin(input);
    });
    assert_eq!(outcome.ok(), "from outside\n");
}

fn only_stdio_is_open(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/probe", "fds"]);
    });
    let numbers: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{text}");
}

fn preserved_descriptors(case: &Case) {
    let mut bundle = case.bundle();
    bundle.args(&["/bin/probe", "fds"]);
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII");
    let run = case.command(&["run", "--preserve-fds", "2", "--bundle", directory, &container.id]);
    let call: Vec<&str> = std::iter::once(run.get_program())
        .chain(run.get_args())
        .map(|word| word.to_str().expect("the path is ASCII"))
        .collect();
    let script = r#"exec 3</etc/passwd 4</etc/group 5</etc/passwd; exec "$@""#;
    let outcome = case.program("sh", &[&["-c", script, "sh"], call.as_slice()].concat());
    let lines: Vec<&str> = outcome.ok().lines().collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[3].starts_with("3 ") && lines[4].starts_with("4 "), "{lines:?}");
}

fn home_is_set(case: &Case) {
    let text = case.output("echo $HOME", |bundle| bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 }));
    assert_eq!(text, "/home/user\n");
}

fn empty_home_is_replaced(case: &Case) {
    let mut bundle = case.script("echo $HOME > /tmp/home; exec sleep 1000");
    bundle.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    bundle.spec["process"]["env"] = json!(["HOME=/elsewhere", "PATH=/bin", "HOME="]);
    let container = case.container(bundle);
    container.create_and_start();
    assert_eq!(container.wait_for_line("/tmp/home"), "/home/user");
    assert_eq!(container.exec(&["--env", "HOME="], &["/bin/sh", "-c", "echo $HOME"]).ok(), "/home/user\n");
    container.remove();
}

fn duplicate_variables(case: &Case) {
    let text = case.output("", |bundle| {
        bundle.args(&["/bin/env"]);
        bundle.spec["process"]["env"] = json!(["PATH=/nowhere", "A=1", "A=", "HOME=/x", "PATH=/bin", "A=2", "AA=3"]);
    });
    let mut variables: Vec<&str> = text.lines().collect();
    variables.sort_unstable();
    assert_eq!(variables, ["A=2", "AA=3", "HOME=/x", "PATH=/bin"]);
}

fn no_process_of_the_runtime_is_inside(case: &Case) {
    // The PID namespace must contain only the processes of the container.
    assert_eq!(case.output("echo $$; ls -d /proc/[0-9]* | wc -l", |_| {}).lines().next(), Some("1"));
}
