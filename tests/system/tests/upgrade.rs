//! Both programs are upgraded while containers run: no log line, exit code, exec or connection is lost.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use system_tests::{ContainerSpec, Node, Options, PodSpec, wait_until};

/// Prints numbered lines without a pause until a file exists, then exits with code 7.
const COUNTER: &str = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; done; echo total $i; exit 7";

/// Returns a node whose monitor program is a copy that can be replaced.
fn node() -> (Node, PathBuf) {
    let node = Node::new(Options::default());
    let monitor = node.dir.path().join("pinmon");
    fs::copy(installed("pinmon"), &monitor).expect("a copy");
    let config = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), format!("monitor = {monitor:?}\nupgrade.monitor = \"manual\"\n{config}"))
        .expect("written");
    let mut node = node;
    node.start_daemon();
    node.load_image();
    (node, monitor)
}

fn installed(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN: run `make test`")).join(name)
}

/// Replaces the monitor by a different file with the same behaviour: bytes after the end of an ELF file are ignored.
fn replace(monitor: &PathBuf) {
    let copy = monitor.with_extension("new");
    fs::copy(monitor, &copy).expect("copied");
    fs::File::options().append(true).open(&copy).and_then(|mut file| file.write_all(b"+")).expect("written");
    fs::rename(copy, monitor).expect("renamed");
}

fn counter(node: &Node) -> String {
    let pod = PodSpec::named(node, "counter");
    let pod_id = node.run_pod(&pod);
    node.run_container(&pod_id, &pod, &ContainerSpec::new("counter", "demo:1", &["sh", "-c", COUNTER]))
}

fn finish(node: &Node, id: &str) {
    // The container may exit, and kill this command, before it returns.
    node.crictl(&["exec", "-s", id, "touch", "/tmp/stop"]);
    wait_until("the exit of the container is reported", || {
        node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    assert_eq!(node.crictl(&["inspect", id]).json()["status"]["exitCode"], 7);
    let log = fs::read_to_string(node.logs().join("counter/counter.log")).expect("a log");
    let lines: Vec<&str> = log.lines().map(|line| line.splitn(4, ' ').nth(3).expect("four fields")).collect();
    let (total, lines) = lines.split_last().expect("lines");
    assert_eq!(*total, format!("total {}", lines.len()), "lines were lost or duplicated");
    for (n, line) in (1..).zip(lines) {
        assert_eq!(*line, format!("line {n}"), "a line is lost or duplicated");
    }
    node.remove_all_pods();
}

#[test]
fn the_monitor_is_upgraded_under_containers_and_execs() {
    let (node, monitor) = node();
    let id = counter(&node);
    let before = node.process("pinmon").pid;
    thread::scope(|scope| {
        let wait = "while [ ! -e /tmp/go ]; do sleep 0.01; done; echo gone";
        let command = scope.spawn(|| node.crictl(&["exec", "-s", &id, "sh", "-c", wait]));
        wait_until("the command runs", || {
            node.processes().iter().any(|process| process.command_line().contains("/tmp/go"))
        });
        for _ in 0..6 {
            replace(&monitor);
            let output = node.pinion(&["upgrade", "monitor"]).ok();
            assert!(output.contains(" now runs "), "{output}");
        }
        let output = node.pinion(&["upgrade", "monitor"]).ok();
        assert!(output.contains("already runs"), "{output}");
        node.crictl(&["exec", "-s", &id, "touch", "/tmp/go"]).ok();
        assert_eq!(command.join().expect("it returns").ok(), "gone");
    });
    assert_eq!(node.process("pinmon").pid, before, "the same process");
    fs::write(&monitor, "#!/bin/sh\n").expect("written");
    let refused = node.pinion(&["upgrade", "monitor"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("keeps running"), "{refused:?}");
    fs::copy(installed("pinmon"), &monitor).expect("restored");
    finish(&node, &id);
    node.end();
}

#[test]
fn the_daemon_is_upgraded_without_refusing_a_connection() {
    let (mut node, monitor) = node();
    let id = counter(&node);
    let before = node.process("pinion").pid;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut requests = 0;
            while !done.load(Ordering::Relaxed) {
                let outcome = node.pinion(&["version"]);
                assert!(!outcome.stderr.contains("no daemon is listening"), "refused: {outcome:?}");
                requests += 1;
            }
            requests
        });
        for round in 1..=4 {
            node.pinion(&["upgrade", "daemon"]).ok();
            wait_until("the next daemon is ready", || node.daemon_log().matches(" ready ").count() > round);
        }
        done.store(true, Ordering::Relaxed);
        assert!(client.join().expect("never refused") > 4);
    });
    assert_eq!(node.process("pinion").pid, before, "the same process");
    assert_eq!(node.crictl(&["exec", "-s", &id, "echo", "alive"]).ok(), "alive");
    // The next daemon would refuse this configuration, so this one keeps running.
    let good = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), "nonsense").expect("written");
    let refused = node.pinion(&["upgrade", "daemon"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("this daemon keeps running"), "{refused:?}");
    fs::write(node.config(), good.replace("\"manual\"", "\"auto\"")).expect("restored");
    // The monitor is upgraded automatically when a daemon starts.
    replace(&monitor);
    node.stop_daemon();
    node.start_daemon();
    wait_until("the monitor is upgraded", || node.daemon_log().contains("the monitor was upgraded"));
    finish(&node, &id);
    node.end();
}
