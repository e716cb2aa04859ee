//! A node with 30 pods whose containers run by the monitor, runc and crun: processes are killed at any time, also a
//! runtime in the middle of its work, and the node is rebooted. Nothing is lost, leaked or stuck.

use std::{fs, process::Command, thread, time::Duration};

use system_tests::{CRUN, ContainerSpec, Node, Options, PodSpec, install_program, wait_until};

const HANDLERS: [&str; 3] = ["", "runc", "crun"];
const PODS: usize = 30;
const IMAGE: &str = "docker.io/library/demo:1";
/// Prints numbered lines until a file exists; then exits with code 7.
const COUNTER: &str =
    "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; sleep 0.2; done; echo total $i; exit 7";
/// Argument of the programs of the containers that are created while their runtime is killed.
const VICTIM: &str = "8104";

fn handler(number: usize) -> &'static str {
    HANDLERS[number % HANDLERS.len()]
}

fn node() -> (Node, tempfile::TempDir) {
    let directory = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a directory");
    let crun = install_program(directory.path(), "crun", CRUN);
    let crun = crun.display();
    let config = format!(
        "[handlers.runc]\nbinary = \"/usr/sbin/runc\"\ntimeout = \"20s\"\n[handlers.crun]\nbinary = \"{crun}\"\n"
    );
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    (node, directory)
}

/// Runs a pod with a handler and a container in it. Returns the ids.
fn run_pod(node: &Node, name: &str, handler: &str, command: &[&str]) -> (String, String) {
    let pod = PodSpec::named(node, name);
    let file = node.file(&format!("pod-{name}.json"), &pod.0);
    let pod_id = node.crictl(&["runp", "--runtime", handler, &file]).ok();
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("c", IMAGE, command));
    (pod_id, id)
}

/// Runs all pods, four at a time. Returns the ids of their containers.
fn run_pods(node: &Node) -> Vec<String> {
    let mut ids = vec![String::new(); PODS];
    for chunk in ids.chunks_mut(4).enumerate() {
        let (number, chunk) = chunk;
        thread::scope(|scope| {
            for (offset, id) in chunk.iter_mut().enumerate() {
                let number = number * 4 + offset;
                let run = move || run_pod(node, &format!("pod-{number}"), handler(number), &["sh", "-c", COUNTER]);
                scope.spawn(move || *id = run().1);
            }
        });
    }
    ids
}

#[track_caller]
fn assert_all_run(node: &Node, ids: &[String], when: &str) {
    let mut expected = ids.to_vec();
    let running = node.crictl(&["ps", "-q", "--no-trunc"]).ok();
    let mut running: Vec<String> = running.lines().map(str::to_owned).collect();
    expected.sort();
    running.sort();
    assert_eq!(running, expected, "{when}");
    for id in &ids[..HANDLERS.len()] {
        wait_until("exec works", || node.crictl(&["exec", "-s", id, "echo", "alive"]).stdout.trim() == "alive");
    }
}

/// Creates containers and kills their runtimes, each a little later than the one before.
fn kill_runtimes(node: &Node) {
    for round in 0..8u64 {
        let name = HANDLERS[1 + round as usize % 2];
        let pod = PodSpec::named(node, &format!("victim-{round}"));
        let file = node.file(&format!("pod-victim-{round}.json"), &pod.0);
        let pod_id = node.crictl(&["runp", "--runtime", name, &file]).ok();
        let spec = ContainerSpec::new("victim", IMAGE, &["sleep", VICTIM]);
        thread::scope(|scope| {
            let create = scope.spawn(|| node.create_container(&pod_id, &pod, &spec));
            let is_runtime = |line: &str| line.starts_with(&format!("{name} ")) || line.contains(&format!("/{name} "));
            let runtime = || node.processes().into_iter().find(|process| is_runtime(&process.command_line()));
            wait_until("the runtime is running, or has ended", || runtime().is_some() || create.is_finished());
            thread::sleep(Duration::from_millis(4 * round));
            // It may have exited.
            let _ = runtime().map(|process| node.run("kill", &["-KILL", &process.pid.to_string()]));
            let _ = create.join().expect("the request was answered");
        });
        node.crictl(&["rmp", "-f", &pod_id]).ok();
    }
    wait_until("nothing of these containers is running", || {
        !node.processes().iter().any(|process| process.command_line() == format!("sleep {VICTIM}"))
    });
}

/// Returns the containers of which a runtime keeps a state.
fn states(node: &Node) -> Vec<String> {
    let list = node.run("sh", &["-c", "ls /run/pinion/runtime/* 2>/dev/null | grep -E '^[0-9a-f]{64}$' || true"]);
    list.ok().lines().map(str::to_owned).collect()
}

#[test]
fn pods_of_three_handlers_survive_kills_of_everything_else() {
    let (mut node, _programs) = node();
    let ids = run_pods(&node);
    assert_all_run(&node, &ids, "at first");
    for round in 0..6 {
        node.kill_in_turn(round);
        assert_all_run(&node, &ids, &format!("round {round}"));
    }
    kill_runtimes(&node);
    assert_all_run(&node, &ids, "after runtimes were killed");
    assert_eq!(states(&node).len(), PODS / HANDLERS.len() * 2, "the runtimes keep the running containers only");

    for id in &ids {
        node.crictl(&["exec", "-s", id, "touch", "/tmp/stop"]).ok();
    }
    for id in &ids {
        wait_until("the counter exits", || {
            node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
        });
        assert_eq!(node.crictl(&["inspect", id]).json()["status"]["exitCode"], 7, "{id}");
        let log = node.crictl(&["logs", id]).ok();
        let mut lines: Vec<&str> = log.lines().collect();
        let total = lines.pop().and_then(|line| line.strip_prefix("total ")?.parse::<usize>().ok());
        assert_eq!(total, Some(lines.len()), "lines are lost or logged twice");
        assert!((1..).zip(&lines).all(|(number, line)| *line == format!("line {number}")), "{log}");
    }
    node.remove_all_pods();
    assert_eq!(states(&node), Vec::<String>::new());
    node.end();
}

/// After a reboot no process is left, and the records are of another boot.
#[test]
fn pods_of_three_handlers_are_gone_after_a_reboot() {
    let (mut node, _programs) = node();
    for (number, handler) in HANDLERS.iter().enumerate() {
        run_pod(&node, &format!("pod-{number}"), handler, &["sleep", VICTIM]);
    }
    node.kill_monitor_and_daemon();
    for process in node.processes() {
        if process.command_line() == format!("sleep {VICTIM}") {
            node.kill(&process);
        }
    }
    // No cgroup outlives a reboot either.
    for group in node.cgroups() {
        wait_until("the cgroups are removed", || {
            fs::metadata(&group).is_err() || {
                let _ = Command::new("find").arg(&group).args(["-depth", "-type", "d", "-delete"]).output();
                false
            }
        });
    }
    node.run("sh", &["-c", "echo another > /run/pinion/boot_id"]).ok();
    node.start_daemon();
    assert_eq!(node.crictl(&["pods", "-q"]).ok() + &node.crictl(&["ps", "-aq"]).ok(), "");
    assert_eq!(states(&node), Vec::<String>::new());
    for (number, handler) in HANDLERS.iter().enumerate() {
        run_pod(&node, &format!("pod-{number}"), handler, &["sleep", VICTIM]);
    }
    node.remove_all_pods();
    assert_eq!(states(&node), Vec::<String>::new());
    node.end();
}
