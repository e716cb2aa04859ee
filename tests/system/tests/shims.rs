//! Runtime handlers that are containerd shims. `test-shim` of this crate is one with real processes, which misbehaves on
//! request. With `RUNC_SHIM`, the path of a `containerd-shim-runc-v2`, the tests of working shims run with it, too
//! (`tests/external/shims`).

mod shim;

use std::{
    env, thread,
    time::{Duration, Instant},
};

use shim::{IMAGE, Shim, check_gone, check_mounts, is_shim, node, node_with, run_pod, state};
use system_tests::{ContainerSpec, Node, PodSpec, install_program, wait_until};

const TEST_SHIM: &str = env!("CARGO_BIN_EXE_test-shim");

/// Command line of a command that a killed daemon leaves behind.
const COMMAND: &str = "sleep 8105";

fn shims() -> Vec<Shim> {
    let test = Shim { name: "test", binary: TEST_SHIM.into() };
    let runc = env::var_os("RUNC_SHIM").map(|path| Shim { name: "runc-v2", binary: path.into() });
    std::iter::once(test).chain(runc).collect()
}

#[test]
fn containers_of_a_shim_run_log_and_exit() {
    let shims = shims();
    let node = node(&shims);
    for shim in &shims {
        let pod = PodSpec::named(&node, shim.name);
        let pod_id = run_pod(&node, &pod, shim.name).ok();
        let script = "echo started; echo problem >&2; while [ ! -e /stop ]; do sleep 0.1; done; echo stopping; exit 7";
        let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("web", IMAGE, &["sh", "-c", script]));
        check_mounts(&node);
        let exec = |command: &[&str]| node.crictl(&[&["exec", "-s", &id], command].concat());
        assert_eq!(exec(&["echo", "hello"]).ok(), "hello", "{}", shim.name);
        exec(&["sh", "-c", "exit 9"]).error();
        exec(&["touch", "/stop"]).ok();
        wait_until("it exits", || state(&node, &id).0 == "CONTAINER_EXITED");
        assert_eq!(state(&node, &id).1, Some(7), "{}", shim.name);
        let log = node.crictl(&["logs", &id]);
        assert_eq!(log.stdout.lines().collect::<Vec<_>>(), ["started", "stopping"], "{}", shim.name);
        assert_eq!(log.stderr.lines().collect::<Vec<_>>(), ["problem"], "{}", shim.name);

        // A container that is never started, one that is killed, and one that is removed while it runs.
        let waiting = ContainerSpec::new("waiting", IMAGE, &["sleep", "1000"]);
        node.create_container(&pod_id, &pod, &waiting).ok();
        let killed = node.run_container(&pod_id, &pod, &ContainerSpec::new("killed", IMAGE, &["sleep", "1001"]));
        node.crictl(&["stop", "--timeout", "0", &killed]).ok();
        assert_eq!(state(&node, &killed), ("CONTAINER_EXITED".to_owned(), Some(137)), "{}", shim.name);
        let running = node.run_container(&pod_id, &pod, &ContainerSpec::new("running", IMAGE, &["sleep", "1002"]));
        node.crictl(&["rm", "-f", &running]).ok();
        node.crictl(&["rmp", "-f", &pod_id]).ok();
        check_gone(&node);
    }
    node.end();
}

#[test]
fn daemon_monitor_and_shim_may_be_killed() {
    let shims = shims();
    let mut node = node(&shims);
    let mut containers = Vec::new();
    for shim in &shims {
        let pod = PodSpec::named(&node, shim.name);
        let pod_id = run_pod(&node, &pod, shim.name).ok();
        let script = "i=0; while [ ! -e /stop ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo total $i; exit 7";
        let spec = ContainerSpec::new("counter", IMAGE, &["sh", "-c", script]);
        let running = node.run_container(&pod_id, &pod, &spec);
        let quick = ContainerSpec::new(
            "quick",
            IMAGE,
            &["sh", "-c", "while [ ! -e /exit ]; do sleep 0.05; done; sleep 2; exit 5"],
        );
        let quick = node.run_container(&pod_id, &pod, &quick);
        let waiting = ContainerSpec::new("waiting", IMAGE, &["sh", "-c", "echo late; sleep 1000"]);
        let waiting = node.create_container(&pod_id, &pod, &waiting).ok();
        containers.push((running, quick, waiting));
    }
    for round in 0..6 {
        node.kill_in_turn(round);
        for (running, _, waiting) in &containers {
            wait_until("exec works", || {
                node.crictl(&["exec", "-s", running, "echo", "alive"]).stdout.trim() == "alive"
            });
            assert_eq!(state(&node, waiting).0, "CONTAINER_CREATED", "round {round}");
        }
    }
    // A command that runs while the daemon is killed ends.
    let command = |node: &Node| node.processes().into_iter().any(|process| process.command_line() == COMMAND);
    for (running, _, _) in &containers {
        thread::scope(|scope| {
            scope.spawn(|| node.crictl(&["exec", "-s", running, "sleep", "8105"]));
            wait_until("the command runs", || command(&node));
            node.kill(&node.process("pinion"));
        });
        node.reap_daemon();
        node.start_daemon();
        wait_until("the command is killed", || !command(&node));
        let fifos = |node: &Node| node.run("sh", &["-c", "ls /run/pinion/container/*/exec-* || true"]).stdout;
        wait_until("its FIFOs are removed", || fifos(&node).is_empty());
    }
    // One exits while no daemon is running.
    for (_, quick, _) in &containers {
        node.crictl(&["exec", "-s", quick, "touch", "/exit"]).ok();
    }
    node.kill_daemon();
    thread::sleep(Duration::from_secs(3));
    node.start_daemon();
    for (running, quick, waiting) in &containers {
        wait_until("its exit is known", || state(&node, quick).0 == "CONTAINER_EXITED");
        assert_eq!(state(&node, quick).1, Some(5));
        node.crictl(&["start", waiting]).ok();
        wait_until("the late container runs", || node.crictl(&["logs", waiting]).stdout.trim() == "late");
        node.crictl(&["exec", "-s", running, "touch", "/stop"]).ok();
        wait_until("the counter exits", || state(&node, running).0 == "CONTAINER_EXITED");
        let log = node.crictl(&["logs", running]).ok();
        let mut lines: Vec<&str> = log.lines().collect();
        let total = lines.pop().and_then(|line| line.strip_prefix("total ")?.parse::<usize>().ok());
        assert_eq!(total, Some(lines.len()), "lines are lost or logged twice");
    }
    // A shim dies: its containers have exited, and everything of them is gone.
    for shim in node.processes().into_iter().filter(is_shim) {
        node.kill(&shim);
    }
    for (_, _, waiting) in &containers {
        wait_until("its exit is known", || state(&node, waiting).0 == "CONTAINER_EXITED");
    }
    node.remove_all_pods();
    check_gone(&node);
    node.end();
}

/// Calls in which the test shim misbehaves.
const CALLS: [&str; 12] =
    ["start", "delete", "Create", "Start", "Wait", "State", "Connect", "Kill", "Exec", "Delete", "Shutdown", "Update"];
const MODES: [&str; 5] = ["hang", "die", "refuse", "garbage", "lie"];
/// Longest time that one request may take: some calls are repeated, each for at most two seconds.
const REQUEST_MAX: Duration = Duration::from_secs(45);

#[test]
fn a_shim_that_hangs_dies_or_lies_delays_and_leaks_nothing() {
    // The commands have the names of methods.
    let name = |mode: &str, call: &str| match call {
        "start" | "delete" => format!("{mode}-command-{call}"),
        call => format!("{mode}-{}", call.to_lowercase()),
    };
    let cases: Vec<(&str, &str)> = CALLS.iter().flat_map(|call| MODES.map(|mode| (mode, *call))).collect();
    let handler = |(mode, call): &(&str, &str)| {
        format!(
            "[handlers.{}]\nkind = \"shim\"\nbinary = \"{TEST_SHIM}\"\ntimeout = \"2s\"\n\
             environment = [\"TEST_SHIM={mode} {call}\"]\n",
            name(mode, call)
        )
    };
    let node = node_with(&cases.iter().map(handler).collect::<String>());
    let next = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some((mode, call)) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    try_misbehaving(&node, &name(mode, call), (mode, call));
                }
            });
        }
    });
    check_gone(&node);
    node.end();
}

/// Runs a pod with a misbehaving shim through its life. Every request ends in time, and removals succeed.
fn try_misbehaving(node: &Node, handler: &str, case: (&str, &str)) {
    let timed = |arguments: &[&str]| {
        let begin = Instant::now();
        let outcome = node.crictl(&[&["--timeout", "60s"], arguments].concat());
        assert!(begin.elapsed() < REQUEST_MAX, "{case:?}: {arguments:?} took {:?}", begin.elapsed());
        outcome
    };
    let pod = PodSpec::named(node, handler);
    let pod_id = run_pod(node, &pod, handler).ok();
    let spec = node.file(&format!("web-{handler}.json"), &ContainerSpec::new("web", IMAGE, &["sleep", "1000"]).0);
    let pod_file = node.file(&format!("pod-{handler}.json"), &pod.0);
    let created = timed(&["create", &pod_id, &spec, &pod_file]);
    let fails_to_create = matches!(case, (_, "start") | ("hang" | "die" | "refuse", "Create"));
    if fails_to_create {
        let error = created.error();
        assert!(error.contains("shim"), "{case:?}: {error}");
    }
    let id = created.stdout.trim().to_owned();
    if !id.is_empty() && id.len() == 64 {
        let started = timed(&["start", &id]);
        if matches!(case, ("hang" | "die" | "refuse", "Start")) {
            let error = started.error();
            assert!(error.contains("shim"), "{case:?}: {error}");
        }
        timed(&["exec", "-s", "--timeout", "5", &id, "true"]);
        timed(&["update", "--cpu-share", "77", &id]);
        timed(&["stop", "--timeout", "1", &id]);
        let (state, _) = state(node, &id);
        assert_eq!(state, "CONTAINER_EXITED", "{case:?}");
        let removed = timed(&["rm", "-f", &id]);
        assert_eq!(removed.code, Some(0), "{case:?}: {}", removed.stderr);
    }
    let removed = timed(&["rmp", "-f", &pod_id]);
    assert_eq!(removed.code, Some(0), "{case:?}: {}", removed.stderr);
}

#[test]
fn an_exit_does_not_wait_for_the_creation_of_another_container() {
    let directory = tempfile::tempdir().expect("directory");
    let hang = directory.path().join("hang");
    let script = format!(
        "#!/bin/sh\ncase \" $*\" in *' start') while [ -e {} ]; do sleep 0.1; done;; esac\nexec {TEST_SHIM} \"$@\"\n",
        hang.display()
    );
    let binary = install_program(directory.path(), "hanging-shim", &script);
    let node = node(&[Shim { name: "hanging", binary }]);
    let pod = PodSpec::named(&node, "hanging");
    let pod_id = run_pod(&node, &pod, "hanging").ok();
    let script = "while [ ! -e /stop ]; do sleep 0.1; done; exit 7";
    let one = node.run_container(&pod_id, &pod, &ContainerSpec::new("one", IMAGE, &["sh", "-c", script]));
    let stopped = node.run_container(&pod_id, &pod, &ContainerSpec::new("stopped", IMAGE, &["sleep", "1000"]));
    std::fs::write(&hang, "").expect("hang from now on");
    let two = ContainerSpec::new("two", IMAGE, &["sleep", "1000"]);
    thread::scope(|scope| {
        let created = scope.spawn(|| node.create_container(&pod_id, &pod, &two).ok());
        wait_until("the command is running", || {
            node.processes().iter().any(|process| process.command_line().contains("hanging-shim"))
        });
        node.crictl(&["exec", "-s", &one, "touch", "/stop"]).ok();
        wait_until("the exit is reported", || state(&node, &one) == ("CONTAINER_EXITED".to_owned(), Some(7)));
        node.crictl(&["stop", "--timeout", "0", &stopped]).ok();
        assert_eq!(state(&node, &stopped), ("CONTAINER_EXITED".to_owned(), Some(137)));
        assert!(!created.is_finished(), "the other container is still being created");
        std::fs::remove_file(&hang).expect("hang no longer");
        created.join().expect("created");
    });
    node.remove_all_pods();
    check_gone(&node);
    node.end();
}

#[test]
fn a_shim_that_does_not_exist_is_refused_with_its_pod() {
    let node = node_with("[handlers.missing]\nkind = \"shim\"\nbinary = \"io.example.missing.v9\"\n");
    let error = run_pod(&node, &PodSpec::named(&node, "missing"), "missing").error();
    assert!(error.contains("containerd-shim-missing-v9"), "{error}");
    node.end();
}

fn sandbox_handler(name: &str, misbehaviour: &str) -> String {
    format!(
        "[handlers.{name}]\nkind = \"shim\"\nbinary = \"{TEST_SHIM}\"\ntimeout = \"2s\"\nsandbox_container = true\n\
         environment = [\"TEST_SHIM={misbehaviour}\"]\n"
    )
}

/// Returns the type, the id of the sandbox, and the id of each container that a shim was given.
fn bundles(node: &Node) -> Vec<(String, String, String)> {
    let configs = node.run("sh", &["-c", "cat /run/pinion/container/*/bundle/*/config.json || true"]).ok();
    let configs = serde_json::Deserializer::from_str(&configs).into_iter::<serde_json::Value>();
    let annotation = |config: &serde_json::Value, name: &str| {
        config["annotations"][format!("io.kubernetes.cri.{name}")].as_str().unwrap_or_default().to_owned()
    };
    let mut found: Vec<_> = configs
        .map(|config| config.expect("JSON"))
        .map(|config| {
            let group = config["linux"]["cgroupsPath"].as_str().expect("a cgroup").to_owned();
            (annotation(&config, "container-type"), annotation(&config, "sandbox-id"), group)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_sandbox_container_is_the_first_and_its_end_stops_the_pod() {
    let mut node = node_with(&sandbox_handler("sandbox", ""));
    let pod = PodSpec::named(&node, "sandbox");
    let pod_id = run_pod(&node, &pod, "sandbox").ok();
    assert_eq!(bundles(&node), [], "it is created with the first container");
    let ids = ["one", "two"]
        .map(|name| node.run_container(&pod_id, &pod, &ContainerSpec::new(name, IMAGE, &["sleep", "1000"])));
    let created = bundles(&node);
    let types: Vec<&str> = created.iter().map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(types, ["container", "container", "sandbox"]);
    assert!(created.iter().all(|(_, sandbox, _)| created[2].2.ends_with(sandbox)), "{created:?}");
    assert_eq!(node.crictl(&["ps", "-aq"]).ok().lines().count(), 2, "it is not listed");
    for round in 0..3 {
        node.kill_in_turn(round);
        wait_until("exec works", || node.crictl(&["exec", "-s", &ids[0], "echo", "alive"]).stdout.trim() == "alive");
    }
    // The containers in the sandbox may be replaced.
    node.crictl(&["rm", "-f", &ids[0]]).ok();
    let third = ContainerSpec::new("three", IMAGE, &["sleep", "1000"]);
    let third = node.run_container(&pod_id, &pod, &third);
    assert_eq!(bundles(&node).len(), 3);

    let is_sandbox = |process: &system_tests::Process| process.command_line() == "/pod-init";
    node.kill(node.processes().iter().find(|process| is_sandbox(process)).expect("it runs"));
    let pod_state = || node.crictl(&["inspectp", &pod_id]).json()["status"]["state"].clone();
    wait_until("the pod is stopped", || pod_state() == "SANDBOX_NOTREADY");
    for id in [&ids[1], &third] {
        assert_eq!(state(&node, id).0, "CONTAINER_EXITED");
    }
    let error = node.create_container(&pod_id, &pod, &ContainerSpec::new("late", IMAGE, &["sleep", "1000"])).error();
    assert!(error.contains("create it again"), "{error}");
    node.crictl(&["rmp", "-f", &pod_id]).ok();
    check_gone(&node);
    node.end();
}

#[test]
fn a_sandbox_container_that_cannot_be_created_or_started_leaves_nothing_behind() {
    let cases = [("refuse", "Create"), ("die", "Create"), ("refuse", "Start"), ("die", "Start"), ("hang", "Start")];
    let name = |(mode, call): (&str, &str)| format!("{mode}-{}", call.to_lowercase());
    let node = node_with(&cases.map(|case| sandbox_handler(&name(case), &format!("{} {}", case.0, case.1))).concat());
    for case in cases {
        let pod = PodSpec::named(&node, &name(case));
        let pod_id = run_pod(&node, &pod, &name(case)).ok();
        let error = node.create_container(&pod_id, &pod, &ContainerSpec::new("web", IMAGE, &["sleep", "1000"])).error();
        assert!(error.contains("start the sandbox container of the pod"), "{case:?}: {error}");
        assert_eq!(bundles(&node), [], "{case:?}");
        node.crictl(&["rmp", "-f", &pod_id]).ok();
    }
    check_gone(&node);
    node.end();
}

#[test]
fn the_features_of_a_shim_are_those_that_it_reports() {
    let modes = ["works", "hang", "die", "refuse", "garbage", "lie"];
    let handler = |mode: &&str| {
        format!(
            "[handlers.{mode}]\nkind = \"shim\"\nbinary = \"{TEST_SHIM}\"\nenvironment = [\"TEST_SHIM={mode} info\"]\n"
        )
    };
    let node = node_with(&modes.iter().map(handler).collect::<String>());
    let reported = |mode: &str| {
        let handlers = node.pinion(&["handlers", "--json"]).json();
        let handlers = handlers.as_array().expect("a list");
        handlers.iter().find(|handler| handler["name"] == mode).expect("the handler").clone()
    };
    wait_until("all programs have ended", || {
        modes.iter().all(|mode| !reported(mode)["problem"].as_str().is_some_and(|text| text.contains("not reported")))
    });
    assert_eq!(reported("works")["version"], "io.example.test.v1");
    assert_eq!(reported("works")["features"]["recursiveReadOnlyMounts"], true);
    let pod = |mode: &str| run_pod(&node, &PodSpec::named(&node, mode), mode);
    let error = pod("hang").error();
    assert!(error.contains("hangs: -info"), "{error}");
    for mode in modes.iter().filter(|mode| **mode != "hang") {
        assert_ne!(reported(mode)["features"]["userNamespaces"], true, "{mode}");
        pod(mode).ok();
    }
    node.remove_all_pods();
    node.end();
}
