//! Pods in virtual machines: they behave like any other pod, and outlive daemon and monitor. Guests are emulated if this
//! machine cannot run them. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{env, fs};

use serde_json::Value;
use system_tests::{Node, Options, Process, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
/// The processes of a virtual machine.
const PROGRAMS: [&str; 2] = ["qemu-system-x86", "virtiofsd"];

fn node() -> Node {
    let image = env::var("PINION_VM_IMAGE").expect("PINION_VM_IMAGE is the directory of an image");
    let config =
        format!("[handlers.vm]\nkind = \"vm\"\nallow_emulation = true\nboot_timeout = \"60s\"\nimage = \"{image}\"\n");
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    node
}

/// Starts a container in a virtual machine of its own, or in that of `pod`.
fn run(node: &Node, pod: &str, name: &str, command: &str) {
    node.pinion(&["run", "-d", "--runtime", "vm", "--pod", pod, "--name", name, IMAGE, "sh", "-c", command]).ok();
}

fn guests(node: &Node) -> Vec<Process> {
    let is_guests = |process: &Process| PROGRAMS.iter().any(|program| process.command_line().contains(program));
    node.processes().into_iter().filter(is_guests).collect()
}

fn state(node: &Node, container: &str) -> String {
    let inspected: Value = node.pinion(&["inspect", container]).json();
    inspected.to_string()
}

fn is_exited(node: &Node, container: &str, code: &str) -> bool {
    let list = node.pinion(&["ps", "-a"]).ok();
    list.lines().any(|line| line.contains(container) && line.contains(&format!("Exited ({code})")))
}

#[test]
fn containers_in_a_guest_behave_like_any_other() {
    let node = node();
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::write(volume.join("file"), "first\n").expect("a file");
    let mount = format!("{}:/volume", volume.display());
    let serve = "httpd -f -p 80 -h /www";
    node.pinion(&[
        "run",
        "-d",
        "--runtime",
        "vm",
        "--pod",
        "web",
        "--name",
        "server",
        "-v",
        &mount,
        IMAGE,
        "sh",
        "-c",
        serve,
    ])
    .ok();
    run(&node, "web", "client", "until nc 127.0.0.1 80 < /dev/null; do sleep 0.1; done; echo connected; uname -r");
    assert_eq!(guests(&node).len(), 2, "one virtual machine, whatever the number of its containers");
    wait_until("the containers of the pod talk over localhost", || {
        node.pinion(&["logs", "client"]).ok().contains("connected")
    });
    let own = node.run("uname", &["-r"]).ok();
    wait_until("the kernel is the guest's", || {
        let log = node.pinion(&["logs", "client"]).ok();
        log.lines().count() == 2 && !log.contains(own.trim())
    });
    assert_eq!(node.pinion(&["exec", "server", "cat", "/volume/file"]).ok(), "first");
    fs::write(volume.join("file"), "second\n").expect("a file");
    wait_until("a change on the node is seen in the guest", || {
        node.pinion(&["exec", "server", "cat", "/volume/file"]).ok() == "second"
    });
    let outcome = node.pinion(&["exec", "server", "sh", "-c", "echo out; echo err >&2; exit 9"]);
    assert_eq!((outcome.code, outcome.stdout.trim(), outcome.stderr.trim()), (Some(9), "out", "err"));
    let numbers = node.pinion(&["exec", "server", "seq", "1", "20000"]).ok();
    assert_eq!(numbers.lines().count(), 20_000, "all output arrives before the exit");
    let address = state(&node, "server");
    let address = address.split("\"ip\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    node.run("ping", &["-c", "1", "-W", "5", address]).ok();
    node.pinion(&["rm", "-f", "server", "client"]).ok();
    node.remove_all_pods();
    assert!(guests(&node).is_empty(), "nothing of the virtual machine is left");
    node.end();
}

#[test]
fn a_guest_outlives_daemon_and_monitor() {
    let mut node = node();
    run(&node, "count", "counter", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done");
    let pids: Vec<i32> = guests(&node).iter().map(|process| process.pid).collect();
    for round in 0..3 {
        if round == 1 {
            node.kill_monitor();
        } else {
            node.kill_daemon();
            run_for_a_moment();
            node.start_daemon();
        }
        let answer = || node.pinion(&["exec", "counter", "echo", "alive"]);
        wait_until("commands are executed in the guest", || answer().code == Some(0));
        assert_eq!(answer().ok(), "alive");
    }
    assert_eq!(guests(&node).iter().map(|process| process.pid).collect::<Vec<_>>(), pids, "the same virtual machine");
    run(&node, "count", "short", "sleep 1; echo last; exit 7");
    node.kill_daemon();
    run_for_a_moment();
    run_for_a_moment();
    node.start_daemon();
    run_for_a_moment();
    println!("{}", node.pinion(&["ps", "-a"]).ok());
    wait_until("the exit while no daemon was running is recorded", || is_exited(&node, "short", "7"));
    assert_eq!(node.pinion(&["logs", "short"]).ok(), "last");
    let log = node.pinion(&["logs", "counter"]).ok();
    let numbers: Vec<u32> = log.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.len() > 20 && numbers.iter().zip(1..).all(|(got, expected)| *got == expected), "{log}");
    node.pinion(&["rm", "-f", "counter", "short"]).ok();
    node.remove_all_pods();
    node.end();
}

fn run_for_a_moment() {
    std::thread::sleep(std::time::Duration::from_secs(1));
}

#[test]
fn the_end_of_the_virtual_machine_is_that_of_its_pod() {
    let node = node();
    for program in PROGRAMS {
        run(&node, "victim", "app", "sleep 1000");
        let guests = guests(&node);
        let process = guests.iter().find(|process| process.command_line().contains(program)).expect("a process");
        node.kill(process);
        wait_until("the container has exited", || {
            node.pinion(&["ps", "-a"]).ok().lines().any(|line| line.contains("app") && line.contains("Exited"))
        });
        node.pinion(&["rm", "-f", "app"]).ok();
        node.run("sh", &["-c", "true"]).ok();
        wait_until("nothing is left", || self::guests(&node).is_empty());
        let pods = node.pinion(&["pods"]).ok();
        if pods.contains("victim") {
            node.remove_all_pods();
        }
    }
    node.end();
}

#[test]
fn a_guest_that_does_not_boot_is_an_error_with_its_console() {
    let image = env::var("PINION_VM_IMAGE").expect("PINION_VM_IMAGE is the directory of an image");
    let config = format!(
        "[handlers.vm]\nkind = \"vm\"\nallow_emulation = true\nboot_timeout = \"2s\"\nmemory = 134217728\nimage = \"{image}\"\n"
    );
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    let refused = node.pinion(&["run", "-d", "--runtime", "vm", "--network", "host", IMAGE, "true"]);
    assert!(refused.error().contains("cannot have the network of the node"), "{}", refused.error());
    let failed = node.pinion(&["run", "-d", "--runtime", "vm", "--name", "never", IMAGE, "true"]);
    if failed.code != Some(0) {
        assert!(failed.error().contains("boot the virtual machine of the pod"), "{}", failed.error());
        assert!(guests(&node).is_empty(), "it was undone");
    }
    node.pinion(&["rm", "-f", "never"]);
    node.remove_all_pods();
    node.end();
}
