//! Pods in virtual machines: they behave like any other pod, and outlive daemon and monitor. Guests are emulated if this
//! machine cannot run them. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{env, fs, process::Stdio};

use serde_json::Value;
use system_tests::{ContainerSpec, Node, Options, PodSpec, Process, wait_until};

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

/// Starts a pod and a container in it, in a virtual machine. Returns their ids.
fn run_by_crictl(node: &Node, change: impl FnOnce(&mut Value), command: &[&str]) -> (String, String) {
    let mut pod = PodSpec::named(node, "guest");
    change(&mut pod.0);
    let file = node.file("guest.json", &pod.0);
    let pod_id = node.crictl(&["--timeout", "60s", "runp", "--runtime", "vm", &file]).ok();
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("app", IMAGE, command));
    (pod_id, id)
}

#[test]
fn statistics_are_those_of_the_guest() {
    let node = node();
    let (pod, id) = run_by_crictl(&node, |_| {}, &["sh", "-c", "head -c 20000000 /dev/zero > /dev/shm/a; sleep 1000"]);
    let stats = || node.crictl(&["stats", "-o", "json", &id]).json()["stats"][0].clone();
    let number = |value: &Value| value["value"].as_str().expect("a number").parse::<u64>().expect("a number");
    wait_until("the memory of the file is in use", || number(&stats()["memory"]["workingSetBytes"]) > 20_000_000);
    let used = number(&stats()["cpu"]["usageCoreNanoSeconds"]);
    assert!(used > 1_000_000, "{used}");
    node.crictl(&["exec", &id, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]).ok();
    wait_until("the usage grows", || number(&stats()["cpu"]["usageCoreNanoSeconds"]) > used);
    let of_pod = node.crictl(&["statsp", "-o", "json", &pod]).json()["stats"][0].clone();
    let containers = of_pod["linux"]["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1, "not the processes of the virtual machine: {of_pod}");
    assert!(number(&containers[0]["memory"]["workingSetBytes"]) > 20_000_000, "{of_pod}");
    let of_pod = number(&of_pod["linux"]["memory"]["workingSetBytes"]);
    assert!(of_pod > 60_000_000, "that of the pod includes the virtual machine: {of_pod}");
    node.remove_all_pods();
    node.end();
}

/// A client that ends its direction first, and prints what it got.
const CLIENT: &str = "import socket,sys
c=socket.create_connection(('127.0.0.1',int(sys.argv[1])))
c.sendall(b'hello'*200000)
c.shutdown(1)
d=b''
while 1:
 b=c.recv(99999)
 if not b: break
 d+=b
print(len(d),d[:5].decode())";

#[test]
fn services_of_a_guest_are_reached_from_everywhere() {
    let node = node();
    let forwarded = |pod: &mut Value| {
        pod["port_mappings"] = serde_json::json!([{"container_port": 80, "host_port": 8090, "protocol": 0}]);
    };
    let serve = "httpd -p 80 -h /www; httpd -p 127.0.0.1:81 -h /www; exec nc -ll -p 82 -e cat";
    let (pod, id) = run_by_crictl(&node, forwarded, &["sh", "-c", serve]);
    let get = |url: &str| node.run("curl", &["-fsS", "--max-time", "10", url]);
    wait_until("it serves", || get("http://127.0.0.1:8090/").stdout.contains("hello from a pod"));
    let address = node.crictl(&["inspectp", &pod]).json()["status"]["network"]["ip"].as_str().expect("ip").to_owned();
    assert!(get(&format!("http://{address}/")).ok().contains("hello from a pod"));
    let other = format!("printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 {address} 80");
    let page = node.pinion(&["run", "--rm", IMAGE, "sh", "-c", &other]).ok();
    assert!(page.contains("hello from a pod"), "from a native pod: {page}");

    let mut crictl = node.command(env::var_os("CRICTL").expect("CRICTL names the crictl program"));
    crictl.args(["--config", "/dev/null", "--runtime-endpoint", "unix:///run/pinion/pinion.sock"]);
    crictl.args(["port-forward", &pod, "8091:81", "8092:82", "8093:83"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = crictl.spawn().expect("crictl starts");
    wait_until("the loopback device of the guest is reached", || {
        get("http://127.0.0.1:8091/").stdout.contains("hello from a pod")
    });
    for _ in 0..5 {
        assert_eq!(node.run("python3", &["-c", CLIENT, "8092"]).ok(), "1000000 hello", "each direction ends by itself");
    }
    assert!(get("http://127.0.0.1:8093/").code != Some(0), "nothing listens there");
    // It ends by itself after an error.
    for process in node.processes().iter().filter(|process| process.name == "crictl") {
        node.run("kill", &["-KILL", &process.pid.to_string()]);
    }
    let _ = child.wait();
    assert_eq!(node.crictl(&["exec", &id, "echo", "alive"]).ok(), "alive");
    node.remove_all_pods();
    node.end();
}
