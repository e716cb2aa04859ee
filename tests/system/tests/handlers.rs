//! Runtime handlers: pods whose containers runc or crun creates. They behave like any other pod, and no process of an
//! engine stays as the parent of a container.

mod terminal;

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::json;
use system_tests::{CRUN, ContainerSpec, Node, Options, Outcome, PodSpec, install_program, wait_until};
use tempfile::TempDir;
use terminal::Terminal;

const RUNTIMES: [&str; 2] = ["runc", "crun"];
const IMAGE: &str = "docker.io/library/demo:1";

/// Returns the runc to test: that of Debian, or a newer one.
fn runc() -> String {
    env::var("RUNC").unwrap_or_else(|_| "/usr/sbin/runc".to_owned())
}

/// Creates a node with these programs as handlers, and those of [`RUNTIMES`]. Returns it and the directory of the
/// programs.
fn node(programs: &[(&str, &str)]) -> (Node, TempDir) {
    let directory = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a directory");
    let mut config = format!("[handlers.runc]\nbinary = {:?}\n", runc());
    for (name, text) in [("crun", CRUN)].iter().chain(programs) {
        let path = install_program(directory.path(), name, text);
        let binary = path.display();
        config += &format!("[handlers.{name}]\nbinary = \"{binary}\"\ntimeout = \"3s\"\n");
    }
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    (node, directory)
}

fn run_pod(node: &Node, pod: &PodSpec, handler: &str) -> Outcome {
    let name = pod.0["metadata"]["name"].as_str().expect("a name").to_owned();
    let file = node.file(&format!("pod-{name}.json"), &pod.0);
    node.crictl(&["runp", "--runtime", handler, &file])
}

/// Returns the names of what the runtimes keep about containers.
fn states(node: &Node) -> Vec<String> {
    let list = node.run("sh", &["-c", "ls /run/pinion/runtime/* 2>/dev/null | grep -E '^[0-9a-f]{64}$' || true"]);
    list.ok().lines().map(str::to_owned).collect()
}

/// Returns the mounts of the node's mount namespace that belong to containers.
fn container_mounts(node: &Node) -> String {
    let init = node.init_pid();
    let mounts = fs::read_to_string(format!("/proc/{init}/mountinfo")).expect("mountinfo");
    mounts.lines().filter(|line| line.contains("/bundle/")).collect()
}

/// Returns the memory limit of a container, from its cgroup.
fn memory_limit(node: &Node, id: &str) -> String {
    let mut groups = node.cgroups();
    while let Some(group) = groups.pop() {
        let limit =
            ["memory.max", "memory.limit_in_bytes"].iter().find_map(|name| fs::read_to_string(group.join(name)).ok());
        match limit.filter(|_| group.ends_with(id)) {
            Some(limit) => return limit.trim().to_owned(),
            None => {
                let entries = fs::read_dir(&group).expect("a cgroup").flatten().map(|entry| entry.path());
                groups.extend(entries.filter(|path| path.is_dir()));
            }
        }
    }
    panic!("container {id} has no cgroup with a memory limit");
}

#[test]
fn containers_of_each_runtime_behave_like_any_other() {
    let (node, _programs) = node(&[]);
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::write(volume.join("file"), "content\n").expect("a file");
    for runtime in RUNTIMES {
        let pod = PodSpec::named(&node, runtime);
        let pod_id = run_pod(&node, &pod, runtime).ok();
        let script = "echo started; cat /volume/file; hostname; id -u; grep Seccomp: /proc/self/status; \
                      trap 'echo stopping; exit 7' TERM; while :; do sleep 0.1; done";
        let mut spec = ContainerSpec::new("web", IMAGE, &["sh", "-c", script]);
        spec.0["mounts"] = json!([{"host_path": volume, "container_path": "/volume", "readonly": true}]);
        spec.0["envs"] = json!([{"key": "GREETING", "value": "hello"}]);
        spec.0["linux"]["resources"] =
            json!({"memory_limit_in_bytes": 64 << 20, "cpu_quota": 50_000, "cpu_period": 100_000});
        let id = node.run_container(&pod_id, &pod, &spec);
        assert_eq!(states(&node), std::slice::from_ref(&id), "{runtime} created the container");
        assert_eq!(container_mounts(&node), "");

        let init = node.processes().into_iter().find(|process| process.command_line().contains("stopping"));
        let monitor = node.process("pinmon").pid;
        assert_eq!(init.map(|process| process.parent), Some(monitor), "{runtime}: the monitor is the parent");
        let names = node.processes().into_iter().map(|process| process.name);
        assert!(!names.clone().any(|name| RUNTIMES.contains(&name.as_str()) || name == "conmon"), "{runtime}");

        let exec = |command: &[&str]| node.crictl(&[&["exec", "-s", &id], command].concat());
        assert_eq!(exec(&["sh", "-c", "echo $GREETING; cat /volume/file"]).ok(), "hello\ncontent");
        exec(&["sh", "-c", "exit 9"]).error();
        exec(&["sh", "-c", "echo x > /volume/new"]).error();
        assert_eq!(memory_limit(&node, &id), (64 << 20).to_string(), "{runtime}");
        node.crictl(&["update", "--memory", &(96 << 20).to_string(), &id]).ok();
        assert_eq!(memory_limit(&node, &id), (96 << 20).to_string(), "{runtime}");
        let stats = node.crictl(&["stats", "-o", "json", &id]).json();
        assert!(stats["stats"][0]["memory"]["workingSetBytes"]["value"].is_string(), "{stats}");

        node.crictl(&["stop", "--timeout", "10", &id]).ok();
        let status = node.crictl(&["inspect", &id]).json()["status"].clone();
        assert_eq!((status["exitCode"].as_i64(), status["state"].as_str()), (Some(7), Some("CONTAINER_EXITED")));
        let log = node.crictl(&["logs", &id]).ok();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.first_chunk(), Some(&["started", "content", runtime, "0"]), "{log}");
        assert_eq!(lines.last(), Some(&"stopping"), "{log}");
        node.crictl(&["rm", &id]).ok();
        assert_eq!(states(&node), Vec::<String>::new(), "{runtime} deleted the container");
        node.crictl(&["rmp", "-f", &pod_id]).ok();
    }
    node.end();
}

#[test]
fn a_terminal_is_that_of_the_runtime() {
    let (node, _programs) = node(&[]);
    for runtime in RUNTIMES {
        let pinion = PathBuf::from(env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinion");
        let script = "tty; read line; echo got $line";
        let line = format!("{} run --rm -it --runtime {runtime} {IMAGE} sh -c '{script}'", pinion.display());
        let mut terminal = Terminal::run(&node, &line);
        terminal.see("/dev/pts/0");
        terminal.type_in("words\n");
        terminal.see("got words");
        assert_eq!(terminal.end(), Some(0));
        assert_eq!(states(&node), Vec::<String>::new());
    }
    node.end();
}

#[test]
fn handlers_are_listed_and_checked() {
    let (node, _programs) = node(&[]);
    let list = node.pinion(&["handlers", "--json"]).json();
    let find = |name: &str| {
        let found = list.as_array().expect("a list").iter().find(|handler| handler["name"] == name);
        found.unwrap_or_else(|| panic!("no handler {name}: {list}")).clone()
    };
    assert_eq!((find("")["kind"].as_str(), find("runc")["kind"].as_str()), (Some("native"), Some("oci")));
    for (name, features) in [("runc", json!(true)), ("crun", serde_json::Value::Null)] {
        let handler = find(name);
        assert!(handler["version"].as_str().is_some_and(|version| version.starts_with(name)), "{handler}");
        assert_eq!(handler["features"]["seccomp"], features, "{handler}");
        let table = node.pinion(&["handlers"]).ok();
        assert!(table.lines().any(|line| line.starts_with(name) && line.contains("oci")), "{table}");
        let report = node.pinion(&["--json", "handlers", "check", name]).json();
        let steps = report["steps"].as_array().expect("steps").clone();
        let failed: Vec<_> = steps.iter().filter(|step| step["ok"] != true).collect();
        assert!(failed.is_empty() && steps.len() >= 11, "{name}: {report}");
        assert_eq!(states(&node), Vec::<String>::new(), "{name}");
    }
    let info = node.pinion(&["info", "--json"]).json();
    assert_eq!(info["handlerDetails"]["runc"]["version"], find("runc")["version"], "{info}");
    node.pinion(&["handlers", "check", "kata"]).error();
    assert!(!node.pinion(&["images"]).ok().contains("handlers-check"));
    node.end();
}

/// Programs that cannot run any pod, and what the error must contain.
const UNUSABLE: [(&str, &str, &str); 4] = [
    ("old", "#!/bin/sh\necho 'runc version 0.9.1'\n", "install runc 1.0 or newer"),
    ("absent", "#!/bin/sh\n", "No such file"),
    ("plain", "#!/bin/sh\n", "it is not executable"),
    ("strange", "#!/no/such/shell\n", "cannot be executed"),
];

#[test]
fn a_pod_is_refused_if_its_runtime_is_unusable_or_lacks_what_the_pod_needs() {
    let (node, directory) = node(&UNUSABLE.map(|(name, text, _)| (name, text)));
    fs::remove_file(directory.path().join("absent")).expect("remove");
    fs::set_permissions(directory.path().join("plain"), PermissionsExt::from_mode(0o644)).expect("chmod");
    for (name, _, expected) in UNUSABLE {
        let error = run_pod(&node, &PodSpec::named(&node, name), name).error();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
        let list = node.pinion(&["handlers"]).ok();
        assert!(list.lines().any(|line| line.starts_with(name) && line.contains(expected)), "{list}");
    }
    node.end();
}

/// Reports whether a handler has a feature.
fn has(node: &Node, handler: &str, feature: &str) -> bool {
    let list = node.pinion(&["handlers", "--json"]).json();
    let found = list.as_array().and_then(|list| list.iter().find(|one| one["name"] == handler)).cloned();
    found.is_some_and(|found| found["features"][feature] == true)
}

#[test]
fn a_pod_has_a_user_namespace_if_its_runtime_supports_them_and_is_refused_otherwise() {
    let (node, _programs) = node(&[]);
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::write(volume.join("file"), "content\n").expect("a file");
    let ids = json!([{"host_id": 200_000, "container_id": 0, "length": 65536}]);
    let context = json!({"namespace_options": {"pid": 1, "userns_options": {"mode": 0, "uids": ids, "gids": ids}}});
    for runtime in RUNTIMES {
        let mut pod = PodSpec::named(&node, runtime);
        pod.0["linux"]["security_context"] = context.clone();
        let outcome = run_pod(&node, &pod, runtime);
        if !has(&node, runtime, "userNamespaces") {
            let error = outcome.error();
            assert!(error.contains(runtime) && error.contains("does not support user namespaces"), "{error}");
            continue;
        }
        let pod_id = outcome.ok();
        let script = "exec 2>&1; cat /proc/self/uid_map; stat -c '%u %U' /volume/file /etc/hosts; echo new > /volume/new; \
                      echo written; sleep 1000";
        let mut spec = ContainerSpec::new("web", IMAGE, &["sh", "-c", script]);
        spec.0["mounts"] =
            json!([{"host_path": volume, "container_path": "/volume", "uidMappings": ids, "gidMappings": ids}]);
        spec.0["linux"]["security_context"] = context.clone();
        let id = node.run_container(&pod_id, &pod, &spec);
        wait_until("it has written the file", || node.crictl(&["logs", &id]).stdout.contains("written"));
        let log = node.crictl(&["logs", &id]).ok();
        let fields: Vec<Vec<&str>> = log.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            fields,
            [vec!["0", "200000", "65536"], vec!["0", "root"], vec!["0", "root"], vec!["written"]],
            "{runtime}"
        );
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(volume.join("new")).expect("the file"));
        assert_eq!(owner, 0, "{runtime}: the volume is id-mapped");
        let map = node.crictl(&["exec", "-s", &id, "cat", "/proc/self/uid_map"]).ok();
        assert!(map.contains("200000"), "{runtime}: {map}");
        node.remove_all_pods();
        assert_eq!(states(&node), Vec::<String>::new(), "{runtime}");
    }
    node.end();
}

#[test]
fn a_volume_is_read_only_recursively_if_the_runtime_supports_that_and_is_refused_otherwise() {
    let (node, _programs) = node(&[]);
    let volume = node.dir.path().join("volume");
    let below = volume.join("below").display().to_string();
    fs::create_dir_all(&below).expect("a volume");
    node.run("mount", &["-t", "tmpfs", "tmpfs", &below]).ok();
    for runtime in RUNTIMES {
        let pod = PodSpec::named(&node, runtime);
        let pod_id = run_pod(&node, &pod, runtime).ok();
        let mut spec = ContainerSpec::new("web", IMAGE, &["sleep", "1000"]);
        let mount =
            json!({"host_path": volume, "container_path": "/volume", "readonly": true, "recursive_read_only": true});
        spec.0["mounts"] = json!([mount]);
        let created = node.create_container(&pod_id, &pod, &spec);
        match has(&node, runtime, "recursiveReadOnlyMounts") {
            true => {
                let id = created.ok();
                node.crictl(&["start", &id]).ok();
                let error = node.crictl(&["exec", "-s", &id, "touch", "/volume/below/file"]).error();
                assert!(error.contains("Read-only file system"), "{runtime}: {error}");
            }
            false => {
                let error = created.error();
                assert!(error.contains("does not support mounts that are read-only recursively"), "{error}");
            }
        }
        node.remove_all_pods();
    }
    node.run("umount", &[&below]).ok();
    node.end();
}

#[test]
fn containers_get_what_the_handler_configures() {
    let directory = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a directory");
    let base = directory.path().join("base.json");
    let spec = json!({"ociVersion": "1.0.2", "annotations": {"from": "base"},
        "process": {"cwd": "/", "env": ["BASE=1"], "rlimits": [{"type": "RLIMIT_CORE", "soft": 0, "hard": 4096}]}});
    fs::write(&base, spec.to_string()).expect("write");
    let config = format!(
        "[handlers.runc]\nbinary = {:?}\nallowed_annotations = [\"b\"]\nbase_runtime_spec = {base:?}\n\
         default_annotations = {{ \"a\" = \"default\", \"b\" = \"default\" }}\nprivileged_without_host_devices = true\n",
        runc()
    );
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    let mut pod = PodSpec::named(&node, "web");
    pod.0["annotations"] = json!({"a": "pod", "b": "pod"});
    pod.0["linux"]["security_context"]["privileged"] = json!(true);
    let pod_id = run_pod(&node, &pod, "runc").ok();
    let mut spec = ContainerSpec::new("web", IMAGE, &["sh", "-c", "echo $BASE; ulimit -Hc; ls /dev; sleep 1000"]);
    spec.0["linux"]["security_context"]["privileged"] = json!(true);
    let id = node.run_container(&pod_id, &pod, &spec);
    wait_until("it has printed", || node.crictl(&["logs", &id]).stdout.contains("zero"));
    let log = node.crictl(&["logs", &id]).ok();
    assert_eq!(log.lines().next(), Some("1"), "{log}");
    assert!(!log.lines().any(|line| line == "loop-control" || line == "fuse" || line == "kvm"), "{log}");
    let bundle = node.run("cat", &[&format!("/run/pinion/container/{id}/bundle/config.json")]).json();
    let annotations = &bundle["annotations"];
    assert_eq!((&annotations["a"], &annotations["b"]), (&json!("default"), &json!("pod")), "{annotations}");
    assert_eq!(annotations["from"], "base", "{annotations}");
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_handler_that_is_not_configured_is_refused() {
    let (node, _programs) = node(&[]);
    let error = run_pod(&node, &PodSpec::named(&node, "kata"), "kata").error();
    let error = error.replace('\\', "");
    assert!(error.contains("\"kata\" is not configured") && error.contains("\"runc\""), "{error}");
    node.end();
}

/// Programs that behave badly, and what the error must contain.
const BAD: [(&str, &str, &str); 4] = [
    ("missing", "", "/no/such/runtime"),
    ("failing", "#!/bin/sh\necho 'something is wrong' >&2; exit 3\n", "something is wrong"),
    ("hanging", "#!/bin/sh\ncase \" $* \" in *' create '*) sleep 8004;; esac\n", "timed out"),
    ("lying", "#!/bin/sh\nexit 0\n", "pid"),
];

#[test]
fn a_runtime_that_fails_hangs_or_lies_leaves_nothing_behind() {
    let programs: Vec<(&str, &str)> = BAD.iter().filter(|bad| !bad.1.is_empty()).map(|bad| (bad.0, bad.1)).collect();
    let (node, _programs) = node(&programs);
    for (name, _, expected) in BAD.iter().filter(|bad| !bad.1.is_empty()) {
        let pod = PodSpec::named(&node, name);
        let pod_id = run_pod(&node, &pod, name).ok();
        let spec = ContainerSpec::new("web", IMAGE, &["sleep", "1000"]);
        let error = node.create_container(&pod_id, &pod, &spec).error();
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(node.crictl(&["ps", "-aq"]).ok(), "", "{name}");
        node.crictl(&["rmp", "-f", &pod_id]).ok();
    }
    wait_until("the hanging runtime is killed", || {
        !node.processes().iter().any(|process| process.command_line().contains("8004"))
    });
    assert_eq!(states(&node), Vec::<String>::new());
    node.end();
}

#[test]
fn daemon_and_monitor_may_be_killed_under_containers_of_a_runtime() {
    let (mut node, _programs) = node(&[]);
    let mut containers = Vec::new();
    for runtime in RUNTIMES {
        let pod = PodSpec::named(&node, runtime);
        let pod_id = run_pod(&node, &pod, runtime).ok();
        let script =
            "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo total $i; exit 7";
        let spec = ContainerSpec::new("counter", IMAGE, &["sh", "-c", script]);
        let running = node.run_container(&pod_id, &pod, &spec);
        let waiting = ContainerSpec::new("waiting", IMAGE, &["sh", "-c", "echo late; sleep 1000"]);
        let waiting = node.create_container(&pod_id, &pod, &waiting).ok();
        containers.push((running, waiting));
    }
    for round in 0..6 {
        node.kill_in_turn(round);
        for (running, waiting) in &containers {
            wait_until("exec works", || {
                node.crictl(&["exec", "-s", running, "echo", "alive"]).stdout.trim() == "alive"
            });
            let state = node.crictl(&["inspect", waiting]).json()["status"]["state"].clone();
            assert_eq!(state, "CONTAINER_CREATED", "round {round}");
        }
    }
    for (running, waiting) in &containers {
        node.crictl(&["start", waiting]).ok();
        wait_until("the late container runs", || node.crictl(&["logs", waiting]).stdout.trim() == "late");
        node.crictl(&["exec", "-s", running, "touch", "/tmp/stop"]).ok();
        wait_until("the counter exits", || {
            node.crictl(&["inspect", running]).json()["status"]["state"] == "CONTAINER_EXITED"
        });
        let log = node.crictl(&["logs", running]).ok();
        let mut lines: Vec<&str> = log.lines().collect();
        let total = lines.pop().and_then(|line| line.strip_prefix("total ")?.parse::<usize>().ok());
        assert_eq!(total, Some(lines.len()), "lines are lost or logged twice");
        for (number, line) in (1..).zip(&lines) {
            assert_eq!(*line, format!("line {number}"));
        }
    }
    node.remove_all_pods();
    assert_eq!(states(&node), Vec::<String>::new());
    node.end();
}
