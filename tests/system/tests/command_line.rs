//! Compatibility of the command line with Docker's: options after the image, exit codes, port conflicts, and the
//! cleanup of containers whose client was killed.

#[allow(dead_code, reason = "these tests do not type")]
mod terminal;

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, PodSpec, Process, Registry, wait_until};
use terminal::Terminal;
use testbed::{make_image, program};

const WAIT: &str = "until test -e /tmp/go; do sleep 0.05; done";

/// Returns a node with the demonstration image.
fn node() -> Node {
    let node = Node::start();
    node.load_image();
    node
}

/// Starts a client in the background.
fn client(node: &Node, args: &[&str]) -> Child {
    let mut command = node.command(program("pinion"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start nsenter")
}

/// Returns the process of a client, not that of its `nsenter`.
fn client_process(node: &Node, verb: &str) -> Process {
    let mut client = None;
    wait_until("the client is running", || {
        let is_client = |process: &Process| process.name == "pinion" && process.command_line().contains(verb);
        client = node.processes().into_iter().find(is_client);
        client.is_some()
    });
    client.expect("the client is running")
}

/// Returns the process of the daemon, even if clients are running.
fn daemon(node: &Node) -> Process {
    node.processes().into_iter().find(|process| process.command_line().contains(" serve ")).expect("a daemon")
}

fn signal(node: &Node, process: &Process, name: &str) {
    node.run("kill", &[&format!("-{name}"), &process.pid.to_string()]).ok();
}

#[track_caller]
fn wait_for_container(node: &Node, name: &str) {
    wait_until("the container is running", || node.pinion(&["exec", name, "true"]).code == Some(0));
}

#[track_caller]
fn assert_nothing_left(node: &Node) {
    wait_until("there are no containers", || node.pinion(&["ps", "-aq"]).stdout.is_empty());
    wait_until("there are no pods", || node.pinion(&["pods", "-q"]).stdout.is_empty());
    let logs = node.dir.path().join("data/logs");
    wait_until("there are no logs", || fs::read_dir(&logs).map_or(0, Iterator::count) == 0);
}

#[test]
fn options_after_the_image_or_the_container_belong_to_the_program() {
    let node = node();
    let words = ["-d", "-p", "80:80", "-u", "nobody", "-v", "/x:/y", "-h", "--rm", "--json", "--"];
    let run = node.pinion(&[&["run", "--rm", "--entrypoint", "echo", "demo:1"], &words[..]].concat());
    assert_eq!(run.ok(), words.join(" "));
    let first = node.pinion(&["run", "--rm", "demo:1", "-d"]);
    assert!(first.code == Some(127) && first.stderr.contains("exec \"-d\""), "{first:?}");
    node.pinion(&["run", "-d", "--name", "web", "demo:1", "sleep", "1000"]).ok();
    let exec = node.pinion(&["exec", "web", "ls", "-d", "/tmp"]);
    assert_eq!(exec.ok(), "/tmp");
    let first = node.pinion(&["exec", "web", "-i"]);
    assert!(first.code == Some(127) && first.stderr.contains("exec \"-i\""), "{first:?}");
    assert_eq!(node.pinion(&["exec", "web", "echo", "-i", "-t", "-u", "x", "--help"]).ok(), "-i -t -u x --help");
    node.pinion(&["rm", "-f", "web"]).ok();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn exit_codes_of_the_engine_are_those_of_docker() {
    let node = node();
    node.pinion(&["run", "-d", "--name", "web", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["run", "--name", "over", "demo:1", "true"]).ok();
    // The error of this file is detected only when it is executed.
    let garbage = node.dir.path().join("garbage");
    fs::write(&garbage, "\x7fnothing").unwrap();
    fs::set_permissions(&garbage, fs::Permissions::from_mode(0o755)).unwrap();
    let garbage = format!("{}:/garbage", garbage.display());
    for (args, code) in [
        (&["run", "--no-such-option", "demo:1", "true"][..], 125),
        (&["run", "-v", "/no/such/file:/x", "demo:1", "true"], 125),
        (&["run", "--name", "web", "demo:1", "true"], 125),
        (&["run", "--pull", "never", "nope:1"], 125),
        (&["run", "--entrypoint", "", "demo:1"], 125),
        (&["run", "--rm", "demo:1", "/etc"], 126),
        (&["run", "--rm", "-v", &garbage, "demo:1", "/garbage"], 126),
        (&["run", "-d", "--rm", "-v", &garbage, "demo:1", "/garbage"], 126),
        (&["run", "-d", "-v", &garbage, "demo:1", "/garbage"], 126),
        (&["run", "--rm", "demo:1", "no-such-program"], 127),
        (&["run", "--rm", "demo:1", "/no/such/program"], 127),
        (&["run", "--rm", "--entrypoint", "", "demo:1", "sh", "-c", "exit 3"], 3),
        (&["exec", "web"], 125),
        (&["exec", "--no-such-option", "web", "true"], 125),
        (&["exec", "over", "true"], 125),
        (&["exec", "nobody-there", "true"], 125),
        (&["exec", "web", "/etc"], 126),
        (&["exec", "web", "no-such-program"], 127),
        (&["exec", "web", "sh", "-c", "exit 9"], 9),
        (&["attach", "over"], 125),
        (&["start", "over"], 1),
    ] {
        let outcome = node.pinion(args);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
    }
    for name in ["web", "over"] {
        node.pinion(&["rm", "-f", name]).ok();
    }
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_host_port_in_use_by_a_process_is_refused() {
    let node = node();
    let mut server = node.command("busybox").args(["nc", "-ll", "-p", "8080", "-e", "echo", "node"]).spawn().unwrap();
    wait_until("the process on the node listens", || {
        node.run("busybox", &["nc", "127.0.0.1", "8080"]).stdout == "node\n"
    });
    let taken = node.pinion(&["run", "-d", "-p", "8080:80", "demo:1", "sleep", "1000"]);
    assert_eq!(taken.code, Some(125), "{taken:?}");
    assert!(taken.stderr.contains("host port 8080/tcp is in use by a process of the node"), "{taken:?}");
    assert_eq!(node.run("busybox", &["nc", "127.0.0.1", "8080"]).stdout, "node\n");
    let host = node.pinion(&["run", "-d", "--network", "host", "-p", "8081:80", "demo:1", "sleep", "1000"]);
    assert!(host.code == Some(125) && host.stderr.contains("--network host"), "{host:?}");
    assert_nothing_left(&node);

    // A pod of the kubelet gets the port, as with containerd, and a warning is logged.
    let mut pod = PodSpec::named(&node, "web");
    pod.0["port_mappings"] = json!([{"protocol": 0, "container_port": 80, "host_port": 8080}]);
    let id = node.run_pod(&pod);
    let serve = ["httpd", "-f", "-p", "80", "-h", "/www"];
    node.run_container(&id, &pod, &ContainerSpec::new("server", "demo:1", &serve));
    wait_until("the pod responds", || {
        node.run("curl", &["-fsS", "-m", "2", "http://127.0.0.1:8080/"]).stdout.contains("hello")
    });
    let log = node.daemon_log();
    assert!(log.contains("a process of the node listens on a host port") && log.contains("8080"), "{log}");
    node.remove_all_pods();
    server.kill().and_then(|()| server.wait()).unwrap();
    node.end();
}

#[test]
fn a_container_that_exited_releases_its_port_and_address() {
    let mut node = node();
    node.pinion(&["run", "-d", "--name", "one", "-p", "8080:80", "demo:1", "sh", "-c", WAIT]).ok();
    assert_eq!(node.pinion(&["run", "-d", "-p", "8080:80", "demo:1", "true"]).code, Some(125), "it is in use");
    node.pinion(&["run", "-d", "--name", "late", "-p", "8081:80", "demo:1", "sh", "-c", WAIT]).ok();
    // One container exits while a daemon is running, the other while none is.
    node.pinion(&["kill", "one"]).ok();
    wait_until("the port is free", || {
        node.pinion(&["run", "-d", "--name", "two", "-p", "8080:80", "demo:1", "sleep", "1000"]).code == Some(0)
    });
    let late = node.processes().into_iter().find(|process| process.command_line().contains("/tmp/go")).unwrap();
    node.kill_daemon();
    signal(&node, &late, "KILL");
    node.start_daemon();
    wait_until("the other port is free", || {
        node.pinion(&["run", "-d", "--name", "three", "-p", "8081:80", "demo:1", "sleep", "1000"]).code == Some(0)
    });
    let states = node.pinion(&["pods", "--json"]).json();
    let state = |name: &str| states.as_array().unwrap().iter().find(|pod| pod["name"] == name).unwrap().clone();
    assert_eq!((&state("one")["state"], &state("one")["ips"]), (&json!("stopped"), &json!([])));
    assert_eq!(state("two")["state"], "ready");
    let table = node.pinion(&["ps", "-a"]).ok();
    let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(
        row("one").contains("Exited (137)") && !row("one").contains("8080") && row("two").contains("8080"),
        "{table}"
    );
    // A port of a shared pod is kept until its last container exits.
    node.pinion(&["run", "-d", "--name", "first", "-p", "8082:80", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["run", "-d", "--pod", "first", "--name", "second", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["kill", "first"]).ok();
    wait_until("it has exited", || node.pinion(&["ps"]).ok().matches("first").count() < 2);
    assert_eq!(node.pinion(&["exec", "second", "echo", "alive"]).ok(), "alive");
    node.pinion(&["kill", "second"]).ok();
    wait_until("the shared port is free", || {
        node.pinion(&["run", "-d", "--name", "third", "-p", "8082:80", "demo:1", "sleep", "1000"]).code == Some(0)
    });
    for name in ["second", "first", "third"] {
        node.pinion(&["rm", "-f", name]).ok();
    }
    // Removing a container does not remove others in its pod.
    node.pinion(&["run", "-d", "--name", "owner", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["run", "-d", "--pod", "owner", "--name", "guest", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["rm", "-f", "guest"]).ok();
    assert_eq!(node.pinion(&["exec", "owner", "echo", "alive"]).ok(), "alive");
    node.pinion(&["rm", "-f", "owner"]).ok();
    let again = node.pinion(&["start", "one"]).error();
    assert!(again.contains("it exited; create a new container"), "{again}");
    for name in ["one", "late", "two", "three"] {
        node.pinion(&["rm", "-f", name]).ok();
    }
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_container_is_removed_although_its_client_was_killed() {
    let mut node = node();
    let mut run = client(&node, &["run", "--rm", "--name", "orphan", "demo:1", "sh", "-c", WAIT]);
    wait_for_container(&node, "orphan");
    signal(&node, &client_process(&node, "run"), "KILL");
    run.wait().unwrap();
    assert_eq!(node.pinion(&["ps", "--json"]).json()[0]["state"], "running", "it does not exit with its client");
    node.pinion(&["exec", "orphan", "touch", "/tmp/go"]);
    assert_nothing_left(&node);

    // Nor does it exit with its daemon, and the next daemon removes it.
    let run = client(&node, &["run", "--rm", "--name", "orphan", "demo:1", "sh", "-c", WAIT]);
    wait_for_container(&node, "orphan");
    node.kill(&daemon(&node));
    let output = run.wait_with_output().unwrap();
    node.reap_daemon();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the daemon exited"), "{output:?}");
    node.start_daemon();
    wait_for_container(&node, "orphan");
    node.pinion(&["exec", "orphan", "touch", "/tmp/go"]);
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn output_that_is_not_read_yet_survives_the_container() {
    const BYTES: usize = 3_000_000;
    let node = node();
    let script = format!("yes | head -c {BYTES}");
    let mut run = client(&node, &["run", "--rm", "demo:1", "sh", "-c", &script]);
    // The container exits during this time; its output is in pipes and messages.
    thread::sleep(Duration::from_secs(1));
    let mut text = Vec::new();
    run.stdout.take().unwrap().read_to_end(&mut text).unwrap();
    assert_eq!((run.wait().unwrap().code(), text.len()), (Some(0), BYTES));
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn a_pod_created_by_run_rm_is_removed_with_its_last_container() {
    let node = node();
    node.pinion(&["run", "--rm", "--pod", "new", "demo:1", "true"]).ok();
    assert_nothing_left(&node);
    assert_eq!(node.pinion(&["run", "--rm", "--pod", "new", "demo:1", "no-such-program"]).code, Some(127));
    assert_eq!(node.pinion(&["run", "--pod", "new", "demo:1", "no-such-program"]).code, Some(127));
    assert_nothing_left(&node);
    let id = node.pinion(&["run", "-d", "--rm", "--pod", "new", "demo:1", "sh", "-c", WAIT]).ok();
    node.pinion(&["run", "-d", "--pod", "new", "--name", "other", "demo:1", "sleep", "1000"]).ok();
    node.pinion(&["exec", &id, "touch", "/tmp/go"]);
    wait_until("it is removed", || node.pinion(&["ps", "-a", "--json"]).json().as_array().unwrap().len() == 1);
    assert_eq!(node.pinion(&["ps", "--json"]).json()[0]["name"], "other", "the pod is kept for the other container");
    // The name of a pod that does not exist yet may be the begin of the id of another one.
    let pods = node.pinion(&["pods", "--json"]).json();
    let name = pods[0]["id"].as_str().expect("an id")[..2].to_owned();
    node.pinion(&["run", "-d", "--pod", &name, "--name", "apart", "demo:1", "sleep", "1000"]).ok();
    assert_eq!(node.pinion(&["pods", "--json"]).json().as_array().expect("pods").len(), 2, "pod {name} is a new one");
    node.pinion(&["pods", "rm", "-f", "new", &name]).ok();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn signals_are_forwarded_to_the_container() {
    let node = node();
    let script = "trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo real-time' 40; trap 'echo term; exit 4' TERM; \
        echo ready; while :; do sleep 0.05; done";
    let run = client(&node, &["run", "--rm", "--name", "signals", "demo:1", "sh", "-c", script]);
    let wait_for_output = |text: &str| wait_until(text, || node.pinion(&["logs", "signals"]).stdout.contains(text));
    wait_for_output("ready");
    let process = client_process(&node, "run");
    for (name, text) in [("USR1", "usr1"), ("HUP", "hup"), ("40", "real-time"), ("HUP", "hup\nreal-time\nhup")] {
        signal(&node, &process, name);
        wait_for_output(text);
    }
    signal(&node, &process, "TERM");
    let output = run.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.as_str()), (Some(4), "ready\nusr1\nhup\nreal-time\nhup\nterm\n"));
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn followed_logs_and_stats_end_with_the_daemon() {
    let mut node = node();
    node.pinion(&["run", "-d", "--name", "web", "demo:1", "sh", "-c", "echo first; sleep 1000"]).ok();
    let logs = client(&node, &["logs", "-f", "web"]);
    let mut stats = Terminal::run(&node, &format!("{} stats", program("pinion").display()));
    stats.see("web");
    client_process(&node, "logs");
    wait_until("its line is in the log", || node.pinion(&["logs", "web"]).stdout == "first\n");
    node.kill(&daemon(&node));
    let output = logs.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b"first\n"[..]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the daemon exited"), "{output:?}");
    stats.see("the daemon exited");
    assert_eq!(stats.end(), Some(125));
    node.reap_daemon();
    node.start_daemon();
    node.pinion(&["rm", "-f", "web"]).ok();
    node.end();
}

#[test]
fn load_lists_the_loaded_images() {
    let node = node();
    let dir = node.dir.path().join("other");
    fs::create_dir(&dir).unwrap();
    make_image(&dir, "docker.io/library/demo:2");
    let archive = dir.join("image.tar");
    let loaded = node.pinion(&["load", "-i", archive.to_str().unwrap()]).ok();
    assert_eq!(loaded, "loaded docker.io/library/demo:2", "the same image had the tag demo:1 before");
    assert_eq!(node.pinion(&["images", "--json"]).json()[0]["tags"].as_array().unwrap().len(), 2);
    node.end();
}

#[test]
fn an_oom_kill_is_reported() {
    let node = node();
    let eat = "tail /dev/zero";
    let run = node.pinion(&["run", "--rm", "--name", "hungry", "-m", "32m", "demo:1", "sh", "-c", eat]);
    assert!(run.stderr.contains("container hungry: a process was killed: out of memory"), "{run:?}");
    let first = node.pinion(&["run", "--rm", "-m", "32m", "demo:1", "tail", "/dev/zero"]);
    assert!(first.code == Some(137) && first.stderr.contains("out of memory"), "{first:?}");
    node.pinion(&["run", "-d", "--name", "web", "-m", "32m", "demo:1", "sleep", "1000"]).ok();
    let exec = node.pinion(&["exec", "web", "tail", "/dev/zero"]);
    assert!(exec.code == Some(137) && exec.stderr.contains("was killed: the container was out of memory"), "{exec:?}");
    let killed = node.pinion(&["exec", "web", "sh", "-c", "kill -9 $$"]);
    assert!(killed.code == Some(137) && killed.stderr.is_empty(), "{killed:?}");
    node.pinion(&["rm", "-f", "web"]).ok();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn why_shows_the_pull_of_the_container_and_failed_starts() {
    let node = Node::start();
    let mut registry = Registry::start(&node);
    let image = "127.0.0.1:5000/demo:1";
    let stages = |name: &str| -> Vec<Value> {
        let objects = node.pinion(&["why", "--json", name]).json();
        let container =
            objects.as_array().unwrap().iter().find(|object| object["kind"] == "container").expect("a container");
        container["timeline"].as_array().expect("a timeline").clone()
    };
    let pulls = |name: &str| stages(name).iter().filter(|stage| stage["name"] == "pull the image").count();
    node.pinion(&["run", "-d", "--name", "first", image, "sleep", "1000"]).ok();
    assert_eq!(pulls("first"), 1, "the container waited for its pull");
    node.pinion(&["pull", image]).ok();
    node.pinion(&["run", "-d", "--name", "second", image, "sleep", "1000"]).ok();
    assert_eq!(pulls("second"), 0, "an earlier pull is not one of its stages");

    assert_eq!(node.pinion(&["run", "-d", "--name", "bad", image, "no-such-program"]).code, Some(127));
    let why = node.pinion(&["why", "--json", "bad"]).json()[0].clone();
    assert_eq!((&why["kind"], &why["name"]), (&json!("container"), &json!("bad")), "{why}");
    assert!(why["failure"].as_str().unwrap().contains("no-such-program"), "{why}");
    assert!(
        why["timeline"].as_array().unwrap().iter().all(|stage| stage["ended"] != 0),
        "all stages have ended: {why}"
    );
    let text = node.pinion(&["why", "bad"]).ok();
    assert!(text.contains("could not be started") && !text.contains("so far"), "{text}");
    for name in ["first", "second"] {
        node.pinion(&["rm", "-f", name]).ok();
    }
    assert_nothing_left(&node);
    registry.stop(&node);
    node.end();
}

#[test]
fn config_show_prints_the_active_configuration() {
    let mut node = Node::new(Options { config: "network.bridge = \"held0\"".to_owned(), ..Options::default() });
    let bridge = |args: &[&str]| {
        let shown = node.pinion(&[&["--json", "config", "show"], args].concat());
        (shown.json()["network"]["bridge"].clone(), shown.stderr)
    };
    let (default, note) = bridge(&[]);
    assert!(default == "pinion0" && note.contains("no daemon is listening"), "{default} {note}");
    assert_eq!(node.pinion(&["config", "show", "--running"]).code, Some(125));
    let checked = node.pinion(&["config", "check"]);
    assert!(checked.stdout == "valid\n" && checked.stderr.contains("nothing was checked"), "{checked:?}");
    node.start_daemon();
    let bridge = |args: &[&str]| {
        let shown = node.pinion(&[&["--json", "config", "show"], args].concat());
        (shown.json()["network"]["bridge"].clone(), shown.stderr)
    };
    assert_eq!(bridge(&[]), (json!("held0"), String::new()), "the daemon reads another file");
    assert_eq!(bridge(&["--files"]).0, "pinion0");
    assert_eq!(bridge(&[node.config().to_str().unwrap()]).0, "held0");
    node.end();
}
