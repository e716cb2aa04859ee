//! Every command as users run it: exit codes, JSON output, and terminals.

mod terminal;

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use system_tests::{Node, Options, wait_until};
use terminal::Terminal;

fn pinion(node: &Node) -> Command {
    node.command(PathBuf::from(env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinion"))
}

/// Returns a node with the demonstration image.
fn node() -> Node {
    let node = Node::start();
    node.load_image();
    node
}

/// Checks that no container or pod is left, nor their snapshots and logs.
#[track_caller]
fn assert_nothing_left(node: &Node) {
    assert_eq!(node.pinion(&["ps", "-aq"]).ok(), "");
    assert_eq!(node.pinion(&["pods", "-q"]).ok(), "");
    let data = node.dir.path().join("data");
    for directory in ["snapshots", "logs"] {
        let entries = fs::read_dir(data.join(directory)).map_or(0, Iterator::count);
        assert_eq!(entries, 0, "{directory} is not empty");
    }
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap_or_else(|| panic!("not an object: {object}")).keys().map(String::as_str).collect()
}

#[track_caller]
fn assert_keys(object: &Value, expected: &[&str]) {
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    assert_eq!(keys(object), expected, "{object}");
}

#[test]
fn run_exits_like_its_program() {
    let node = node();
    let run = |args: &[&str]| node.pinion(&[&["run", "--rm"], args].concat());
    assert_eq!(run(&["demo:1", "true"]).code, Some(0));
    assert_eq!(run(&["demo:1", "sh", "-c", "exit 7"]).code, Some(7));
    let missing = run(&["demo:1", "no-such-program"]);
    assert_eq!(missing.code, Some(127), "{missing:?}");
    assert!(missing.stderr.contains("no-such-program"), "{missing:?}");
    let refused = run(&["demo:1", "/etc/passwd"]);
    assert_eq!(refused.code, Some(126), "{refused:?}");
    let image = run(&["--pull", "never", "not-here:1"]);
    assert_eq!(image.code, Some(125), "{image:?}");
    assert!(image.stderr.contains("not-here:1"), "{image:?}");
    let directory = run(&["-v", "/no/such/directory:/data", "demo:1", "true"]);
    assert!(directory.code != Some(0) && directory.stderr.contains("/no/such/directory"), "{directory:?}");
    assert_nothing_left(&node);

    let killed = pinion(&node).args(["run", "--rm", "--name", "victim", "demo:1", "sleep", "1000"]).spawn().unwrap();
    wait_until("the container is running", || node.pinion(&["ps", "-q"]).stdout.trim().len() == 64);
    node.pinion(&["kill", "victim"]).ok();
    assert_eq!(killed.wait_with_output().unwrap().status.code(), Some(137));
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn streams_are_separate_and_input_is_forwarded() {
    let node = node();
    let both = node.pinion(&["run", "--rm", "demo:1", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("out\n", "err\n"));
    let mut cat = pinion(&node);
    cat.args(["run", "--rm", "-i", "demo:1", "sha256sum"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    // More than the capacity of a pipe, so that all buffers on the path are full at some time.
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), &b"0123456789abcde\n".repeat(65536)).unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let sum = node.run("sh", &["-c", "yes 0123456789abcde | head -65536 | sha256sum"]).ok();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), sum);
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn options_are_applied_to_the_container() {
    let node = node();
    let (shared, file) = (node.dir.path().join("shared"), node.dir.path().join("env"));
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("note"), "from the machine\n").unwrap();
    fs::write(&file, "# a comment\nFILE=from a file\nBOTH=file\n").unwrap();
    let (read_only, writable) = (format!("{}:/ro:ro", shared.display()), format!("{}:/rw", shared.display()));
    let script = "id -un; id -gn; pwd; hostname; echo $FILE $BOTH $ONE $HERE; cat /ro/note; \
        touch /etc/x 2>/dev/null || echo root is read-only; touch /ro/x 2>/dev/null || echo volume is read-only; \
        cat > /rw/written";
    let mut run = pinion(&node);
    run.env("HERE", "inherited").stdin(Stdio::piped()).stdout(Stdio::piped());
    run.args(["run", "--rm", "-i", "--name", "full", "-u", "root:staff", "-w", "/tmp", "-e", "ONE=1", "-e", "HERE"]);
    run.args(["-e", "BOTH=argument", "--env-file", file.to_str().unwrap(), "-v", &read_only, "-v", &writable]);
    run.args(["--read-only", "--entrypoint", "sh", "--memory", "64m", "--cpus", "0.5", "demo:1", "-c", script]);
    let mut run = run.spawn().unwrap();
    // Its limits are checked while it waits for input.
    let limit = || node.pinion(&["stats", "--json", "full"]).json()[0]["memoryLimitBytes"].as_u64();
    wait_until("its limit is reported", || {
        node.pinion(&["ps", "-q"]).stdout.trim().len() == 64 && limit() == Some(64 << 20)
    });
    let groups: Vec<String> = node.cgroups().iter().map(|path| path.display().to_string()).collect();
    let values = |files: &str| {
        let find = format!("find {} -type f \\( {files} \\) -exec cat {{}} +", groups.join(" "));
        node.run("sh", &["-c", &find]).ok()
    };
    let memory = values("-name memory.max -o -name memory.limit_in_bytes");
    assert!(memory.lines().any(|line| line == "67108864"), "{memory}");
    let cpu = values("-name cpu.max -o -name cpu.cfs_quota_us");
    assert!(cpu.lines().any(|line| line == "50000" || line == "50000 100000"), "{cpu}");
    std::io::Write::write_all(&mut run.stdin.take().unwrap(), b"from the container").unwrap();
    let output = run.wait_with_output().unwrap();
    let lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    let expected = [
        "root",
        "staff",
        "/tmp",
        "full",
        "from a file argument 1 inherited",
        "from the machine",
        "root is read-only",
        "volume is read-only",
    ];
    assert_eq!(lines, expected);
    assert_eq!(fs::read_to_string(shared.join("written")).unwrap(), "from the container");
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_privileged_container_has_the_devices_and_capabilities_of_the_node() {
    let node = node();
    let script =
        "test -c /dev/mem -o -c /dev/kmsg && test -L /dev/ptmx && grep -E '^(CapEff|Seccomp):' /proc/self/status";
    let output = node.pinion(&["run", "--rm", "--privileged", "demo:1", "sh", "-c", script]).ok();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find(|line| line.starts_with("CapEff:")).unwrap();
    assert!(output.contains(capabilities) && output.contains("Seccomp:\t0"), "{output}\n{capabilities}");
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_container_goes_through_its_life_cycle() {
    let node = node();
    let script = "echo first; until test -e /tmp/go; do sleep 0.05; done; echo last; sleep 1000";
    let id = node.pinion(&["run", "-d", "--name", "hand", "-l", "a=b", "demo:1", "sh", "-c", script]).ok();
    let taken = node.pinion(&["run", "-d", "--name", "hand", "demo:1", "true"]);
    assert_eq!(taken.code, Some(125), "{taken:?}");
    assert!(taken.stderr.contains("\"hand\" is taken"), "{taken:?}");
    let table = node.pinion(&["ps"]).ok();
    assert!(table.contains("CONTAINER") && table.contains("hand") && table.contains("Up "), "{table}");

    let mut follow = pinion(&node);
    let follow = follow.args(["logs", "-f", "hand"]).stdout(Stdio::piped()).spawn().unwrap();
    let exec = node.pinion(&[
        "exec",
        "-e",
        "A=1",
        "-w",
        "/tmp",
        "-u",
        "nobody",
        "hand",
        "sh",
        "-c",
        "id -un; pwd; echo $A; exit 5",
    ]);
    assert_eq!((exec.code, exec.stdout.as_str()), (Some(5), "nobody\n/tmp\n1\n"), "{exec:?}");
    let missing = node.pinion(&["exec", "hand", "no-such-program"]);
    assert_eq!(missing.code, Some(127), "{missing:?}");
    assert_eq!(missing.stderr.matches("exec in container").count(), 1, "reported twice: {missing:?}");
    assert_eq!(node.pinion(&["exec", "nobody-there", "true"]).code, Some(125));
    release(&node, "hand");
    wait_until("it wrote its last line", || node.pinion(&["logs", "hand"]).ok() == "first\nlast");

    // The shell is the init process of its PID namespace and ignores SIGTERM, which it does not handle.
    assert_eq!(node.pinion(&["stop", "-t", "0", "hand"]).ok(), "hand");
    let output = follow.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "first\nlast\n");
    assert_eq!(node.pinion(&["wait", "hand"]).ok(), "137");
    assert_eq!(node.pinion(&["ps", "-q"]).ok(), "");
    assert_eq!(node.pinion(&["ps", "-aq"]).ok(), id);
    assert!(node.pinion(&["ps", "-a"]).ok().contains("Exited (137)"));
    assert_eq!(node.pinion(&["logs", "hand"]).ok(), "first\nlast", "logs of a stopped container");
    assert_eq!(node.pinion(&["logs", "-n", "1", "hand"]).ok(), "last");
    let error = node.pinion(&["exec", "hand", "true"]);
    assert!(error.code != Some(0) && error.stderr.contains("is not running"), "{error:?}");
    assert_eq!(node.pinion(&["rm", &id[..12]]).ok(), &id[..12]);
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_pod_of_several_containers() {
    let node = node();
    for name in ["one", "two"] {
        node.pinion(&["run", "-d", "--pod", "group", "--name", name, "demo:1", "sleep", "1000"]).ok();
    }
    let pods = node.pinion(&["pods", "--json"]).json();
    assert_eq!((pods.as_array().unwrap().len(), &pods[0]["name"]), (1, &Value::from("group")));
    assert_eq!(pods[0]["containers"], 2);
    let late = node.pinion(&["run", "-d", "--pod", "group", "-p", "8080:80", "demo:1", "true"]);
    assert!(late.code != Some(0) && late.stderr.contains("ports are published when a pod is created"), "{late:?}");
    node.pinion(&["rm", "-f", "one"]).ok();
    assert_eq!(node.pinion(&["pods", "--json"]).json()[0]["containers"], 1, "a pod that was requested by name is kept");
    let refused = node.pinion(&["pods", "rm", "group"]).error();
    assert!(refused.contains("\"two\"") && refused.contains("pods rm -f group"), "{refused}");
    node.pinion(&["pods", "stop", "group"]).ok();
    assert!(node.pinion(&["pods"]).ok().contains("stopped"));
    node.pinion(&["pods", "rm", "group"]).ok();
    assert_nothing_left(&node);
    node.end();
}

/// Creates the file that a container waits for. The exec'd process may be killed by the exit of the container (137).
fn release(node: &Node, id: &str) {
    let outcome = node.pinion(&["exec", id, "touch", "/tmp/go"]);
    assert!(matches!(outcome.code, Some(0 | 137)), "{outcome:?}");
}

#[test]
fn a_detached_container_with_rm_is_removed_when_it_exits() {
    let mut node = node();
    let wait = "until test -e /tmp/go; do sleep 0.05; done";
    let run = |node: &Node, more: &[&str]| {
        node.pinion(&[&["run", "-d", "--rm"], more, &["demo:1", "sh", "-c", wait]].concat()).ok()
    };
    let id = run(&node, &[]);
    release(&node, &id);
    wait_until("the container and its pod are removed", || node.pinion(&["pods", "-q"]).stdout.is_empty());
    wait_until("its logs are removed", || fs::read_dir(node.dir.path().join("data/logs")).unwrap().next().is_none());
    assert_nothing_left(&node);

    // In a pod with other containers only the container is removed; the request survives a killed daemon.
    node.pinion(&["run", "-d", "--pod", "group", "--name", "stays", "demo:1", "sleep", "1000"]).ok();
    let in_pod = run(&node, &["--pod", "group"]);
    let in_own_pod = run(&node, &[]);
    node.kill_daemon();
    node.start_daemon();
    for id in [&in_pod, &in_own_pod] {
        release(&node, id);
    }
    wait_until("one pod is left", || node.pinion(&["pods", "--json"]).json().as_array().unwrap().len() == 1);
    wait_until("one container is left", || node.pinion(&["ps", "-a", "--json"]).json().as_array().unwrap().len() == 1);
    assert_eq!(node.pinion(&["ps", "-a", "--json"]).json()[0]["name"], "stays");
    let missing = node.pinion(&["run", "-d", "--rm", "demo:1", "no-such-program"]);
    assert_eq!(missing.code, Some(127), "{missing:?}");
    node.pinion(&["pods", "rm", "-f", "group"]).ok();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn json_output_of_every_command() {
    let node = node();
    let id = node.pinion(&["run", "-d", "--json", "--name", "j", "demo:1", "sh", "-c", "echo x; sleep 1000"]).json();
    assert_keys(&id, &["id", "podId"]);
    let ps = node.pinion(&["ps", "--json"]).json();
    assert_keys(
        &ps[0],
        &[
            "id",
            "name",
            "image",
            "imageId",
            "state",
            "exitCode",
            "reason",
            "pod",
            "podId",
            "createdAt",
            "startedAt",
            "finishedAt",
            "labels",
            "annotations",
        ],
    );
    assert_eq!((&ps[0]["state"], &ps[0]["exitCode"]), (&Value::from("running"), &Value::Null));
    assert_keys(
        &node.pinion(&["pods", "--json"]).json()[0],
        &[
            "id",
            "name",
            "namespace",
            "uid",
            "attempt",
            "state",
            "ip",
            "ips",
            "containers",
            "createdAt",
            "labels",
            "annotations",
        ],
    );
    assert_keys(
        &node.pinion(&["images", "--json"]).json()[0],
        &["id", "tags", "digests", "size", "username", "uid", "pinned"],
    );
    assert_keys(
        &node.pinion(&["stats", "--json"]).json()[0],
        &["id", "name", "cpuPercent", "cpuNanoseconds", "memoryBytes", "memoryLimitBytes", "diskBytes"],
    );
    let common = ["type", "id", "info"];
    let container = node.pinion(&["inspect", "j"]).json()[0].clone();
    for key in common.iter().chain(&["name", "state", "exitCode", "logPath", "pod", "labels", "createdAt", "image"]) {
        assert!(container.get(key).is_some(), "{key}: {container}");
    }
    assert_eq!(container["info"]["runtimeSpec"]["process"]["args"][0], "sh");
    let pod = node.pinion(&["inspect", "--type", "pod", "j"]).json()[0].clone();
    for key in common.iter().chain(&["name", "namespace", "uid", "state", "ip", "ips", "containers"]) {
        assert!(pod.get(key).is_some(), "{key}: {pod}");
    }
    let image = node.pinion(&["inspect", "demo:1"]).json()[0].clone();
    assert_keys(&image, &["type", "id", "tags", "digests", "size", "uid", "username", "pinned", "info"]);
    wait_until("its line is in the log", || !node.pinion(&["logs", "j"]).stdout.is_empty());
    assert_keys(&node.pinion(&["logs", "--json", "j"]).json(), &["time", "stream", "partial", "text"]);
    let info = node.pinion(&["info", "--json"]).json();
    assert_eq!(info["daemon"]["socket"], "/run/pinion/pinion.sock", "{info}");
    assert_keys(&node.pinion(&["version", "--json"]).json(), &["client", "daemon"]);
    for command in [&["stop", "-t", "0", "j"][..], &["rm", "j"]] {
        assert_eq!(node.pinion(&[command, &["--json"]].concat()).json(), serde_json::json!(["j"]));
    }
    assert_eq!(node.pinion(&["rmi", "--json", "demo:1"]).json(), serde_json::json!(["demo:1"]));
    for empty in ["ps", "pods", "images", "stats"] {
        assert_eq!(node.pinion(&[empty, "--json"]).json(), serde_json::json!([]), "{empty}");
    }
    assert_nothing_left(&node);
    node.end();
}

/// Runs `pinion` with these arguments on a terminal.
fn on_a_terminal(node: &Node, args: &[&str]) -> Terminal {
    let program = PathBuf::from(env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinion");
    let quoted: Vec<String> = args.iter().map(|word| format!("'{word}'")).collect();
    Terminal::run(node, &format!("{} {}", program.display(), quoted.join(" ")))
}

#[test]
fn a_container_with_a_terminal() {
    let node = node();
    let script = "test -t 0 && test -t 1 && echo is-a-terminal; stty size; read line; echo got-$line; exit 3";
    let mut run = on_a_terminal(&node, &["run", "--rm", "-it", "demo:1", "sh", "-c", script]);
    run.see("is-a-terminal");
    run.see("24 80");
    run.type_in("hello\r");
    run.see("got-hello");
    assert_eq!(run.end(), Some(3));
    assert_nothing_left(&node);

    node.pinion(&["run", "-dit", "--name", "shell", "demo:1", "sh"]).ok();
    let mut attach = on_a_terminal(&node, &["attach", "shell"]);
    attach.type_in("echo $((6*7))\r");
    attach.see("42");
    attach.type_in("\x10\x11");
    assert_eq!(attach.end(), Some(0), "ctrl-p ctrl-q leaves");
    let mut exec = on_a_terminal(&node, &["exec", "-it", "shell", "sh"]);
    exec.type_in("tty; exit 4\r");
    exec.see("/dev/pts/");
    assert_eq!(exec.end(), Some(4));
    assert_eq!(node.pinion(&["ps", "--json"]).json()[0]["state"], "running");
    let none = node.pinion(&["run", "--rm", "-it", "demo:1", "true"]);
    assert!(none.code != Some(0) && none.stderr.contains("not a terminal"), "{none:?}");
    node.pinion(&["rm", "-f", "shell"]).ok();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn without_a_daemon() {
    let node = Node::new(Options::default());
    for args in
        [&["ps"][..], &["pods"], &["images"], &["version"], &["info"], &["run", "demo:1"], &["exec", "x", "true"]]
    {
        let outcome = node.pinion(args);
        assert_eq!(outcome.code, Some(125), "{outcome:?}");
        let is_explained =
            outcome.stderr.contains("/run/pinion/pinion.sock") && outcome.stderr.contains("pinion serve");
        assert!(is_explained, "{outcome:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = node.pinion(&["completions", shell]).ok();
        assert!(script.contains("run") && script.contains("pinion"), "{shell}");
    }
    let default = node.pinion(&["config", "default"]).ok();
    assert!(default.contains("data_dir = \"/var/lib/pinion\""), "{default}");
    let file = node.config();
    let path = file.to_str().unwrap();
    assert_eq!(node.pinion(&["config", "check", path]).ok(), "valid");
    assert_eq!(node.pinion(&["config", "check", "--json", path]).json()["valid"], true);
    let shown = node.pinion(&["config", "show", "--json", path]).json();
    assert_eq!(shown["data_dir"], node.dir.path().join("data").to_str().unwrap());
    fs::write(&file, node.pinion(&["config", "show", path]).ok()).unwrap();
    assert_eq!(node.pinion(&["config", "check", path]).ok(), "valid", "the output of `show` can be read again");
}
