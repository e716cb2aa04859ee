//! Any process may be killed at any time: nothing is lost, leaked or stuck.

use std::{fs, path::PathBuf, thread, time::Duration};

use system_tests::{ContainerSpec, Node, PodSpec, wait_until};

/// Prints numbered lines without a pause, some in two writes, until a file exists; then exits with code 7.
const COUNTER: &str = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; printf 'pie'; printf 'ce %d\\n' $i; done; echo total $i; exit 7";

#[test]
fn the_daemon_may_be_killed_at_any_time() {
    let mut node = Node::start();
    node.load_image();
    let (pod_id, id) = counter(&node);
    for round in 0..12u64 {
        thread::sleep(Duration::from_millis(17 * round % 90)); // a different time in each round
        node.kill_daemon();
        node.start_daemon();
        assert_eq!(node.crictl(&["ps", "-q"]).ok(), id);
        assert_eq!(node.crictl(&["pods", "-q", "--state", "ready"]).ok(), pod_id);
        assert_eq!(node.crictl(&["exec", "-s", &id, "echo", "alive"]).ok(), "alive");
    }
    finish(&node, &id);
    node.end();
}

#[test]
fn the_monitor_may_be_killed_at_any_time() {
    let node = Node::start();
    node.load_image();
    let (_, id) = counter(&node);
    for round in 0..12u64 {
        thread::sleep(Duration::from_millis(31 * round % 90));
        node.kill_monitor();
        wait_until("exec works again", || node.crictl(&["exec", "-s", &id, "echo", "alive"]).stdout.trim() == "alive");
    }
    finish(&node, &id);
    node.end();
}

#[test]
fn the_exit_code_is_known_if_a_container_exits_while_no_monitor_runs() {
    let mut node = Node::start();
    node.load_image();
    let (_, id) = counter(&node);
    // The restarted daemon is not an ancestor of the container, so it cannot use waitid(2).
    node.kill_daemon();
    node.start_daemon();
    node.kill_monitor();
    finish(&node, &id);
    node.end();
}

/// A command that neither reads nor writes does not notice that its client is gone. A background process of an earlier
/// command belongs to the container and is not killed.
#[test]
fn a_command_does_not_outlive_its_client() {
    let mut node = Node::start();
    node.load_image();
    let (_, id) = counter(&node);
    node.crictl(&["exec", "-s", &id, "sh", "-c", "sleep 8001 >/dev/null 2>&1 &"]).ok();
    thread::scope(|scope| {
        scope.spawn(|| node.crictl(&["exec", "-s", &id, "sleep", "8002"]));
        wait_until("the command is running", || sleeps(&node, 8002));
        let [monitor, daemon] = [node.process("pinmon"), node.process("pinion")].map(|process| process.pid.to_string());
        // Both at once, because the monitor kills the commands of a daemon that exits.
        node.run("kill", &["-KILL", &monitor, &daemon]).ok();
    });
    assert!(sleeps(&node, 8002) && sleeps(&node, 8001));
    node.reap_daemon();
    node.start_daemon();
    wait_until("the command was killed", || !sleeps(&node, 8002));
    assert!(sleeps(&node, 8001), "a background process belongs to the container");
    finish(&node, &id);
    node.end();
}

/// Returns the cgroup of the container in the v2 hierarchy.
fn cgroup_v2(node: &Node, id: &str) -> PathBuf {
    let trees = node.cgroups().into_iter().filter(|group| group.join("cgroup.freeze").exists());
    let mut groups: Vec<PathBuf> = trees.collect();
    while let Some(group) = groups.pop() {
        if group.file_name().is_some_and(|name| name.to_string_lossy().contains(id)) {
            return group;
        }
        let entries = fs::read_dir(&group).expect("a cgroup").flatten().map(|entry| entry.path());
        groups.extend(entries.filter(|path| path.is_dir()));
    }
    panic!("container {id} has no cgroup in the v2 hierarchy");
}

/// The monitor is killed between the clone of a command and its response; the daemon keeps running.
#[test]
fn a_command_whose_start_got_no_response_is_killed() {
    let node = Node::start();
    node.load_image();
    let (_, id) = counter(&node);
    let group = cgroup_v2(&node, &id);
    let freeze = |value: &str| fs::write(group.join("cgroup.freeze"), value).expect("freeze");
    let commands = || fs::read_dir(&group).expect("cgroups").flatten().filter(|entry| entry.path().is_dir()).count();
    thread::scope(|scope| {
        freeze("1");
        let exec = scope.spawn(|| node.crictl(&["exec", "-s", &id, "sleep", "8003"]));
        wait_until("the command is cloned", || commands() == 1);
        node.kill_monitor();
        freeze("0");
        exec.join().expect("crictl").error();
    });
    wait_until("the command was killed", || !sleeps(&node, 8003) && commands() == 0);
    finish(&node, &id);
    node.end();
}

#[test]
fn the_exit_of_a_container_while_no_daemon_runs_is_reported_later() {
    let mut node = Node::start();
    node.load_image();
    let (_, id) = counter(&node);
    node.kill_daemon();
    let container =
        node.processes().into_iter().find(|process| process.name == "sh").expect("the process of the container");
    fs::write(container.path("/tmp/stop"), "").unwrap();
    wait_until("the container has exited", || !node.processes().iter().any(|process| process.name == "sh"));
    node.start_daemon();
    check_exit(&node, &id);
    node.remove_all_pods();
    node.end();
}

#[test]
fn requests_in_flight_when_the_daemon_is_killed_leak_nothing() {
    let mut node = Node::start();
    node.load_image();
    for round in 0..8u64 {
        let pod = PodSpec::named(&node, &format!("flight{round}"));
        thread::scope(|scope| {
            let runner = scope.spawn(|| {
                let file = node.file("flight.json", &pod.0);
                let _ = node.crictl(&[
                    "run",
                    "--no-pull",
                    &node.file("c.json", &ContainerSpec::new("c", "demo:1", &["sleep", "9999"]).0),
                    &file,
                ]);
            });
            thread::sleep(Duration::from_millis(20 + 5 * round));
            node.kill(&node.process("pinion"));
            runner.join().unwrap();
        });
        node.reap_daemon();
        node.start_daemon();
        node.remove_all_pods();
    }
    assert!(node.processes().iter().all(|process| process.name.starts_with("pin")), "{:?}", node.processes());
    node.end();
}

fn sleeps(node: &Node, seconds: u32) -> bool {
    node.processes().iter().any(|process| process.command_line() == format!("sleep {seconds}"))
}

fn counter(node: &Node) -> (String, String) {
    let pod = PodSpec::named(node, "counter");
    let pod_id = node.run_pod(&pod);
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("counter", "demo:1", &["sh", "-c", COUNTER]));
    (pod_id, id)
}

/// Lets the counter exit, checks its log and exit code, and removes it.
fn finish(node: &Node, id: &str) {
    wait_until("the counter is signalled", || {
        // The command may have created the file before it was killed by the exit of the container.
        node.crictl(&["exec", "-s", id, "touch", "/tmp/stop"]).code == Some(0)
            || node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    check_exit(node, id);
    node.remove_all_pods();
}

fn check_exit(node: &Node, id: &str) {
    wait_until("the exit of the container is reported", || {
        node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    let status = node.crictl(&["inspect", id]).json();
    assert_eq!(status["status"]["exitCode"], 7, "{status}");
    let log = fs::read_to_string(node.logs().join("counter/counter.log")).unwrap();
    let mut lines = log.lines().map(|line| line.splitn(4, ' ').nth(3).expect("four fields"));
    let mut expected = 0u64;
    let total = loop {
        let line = lines.next().expect("the log ends with the total");
        if let Some(total) = line.strip_prefix("total ") {
            break total.parse::<u64>().unwrap();
        }
        expected += 1;
        assert_eq!(line, format!("line {expected}"), "a line is lost or duplicated");
        assert_eq!(lines.next(), Some(format!("piece {expected}").as_str()), "a line is lost or duplicated");
    };
    assert_eq!(total, expected);
    assert_eq!(lines.next(), None);
}
