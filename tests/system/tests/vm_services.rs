//! What the kubelet and its users do with pods in virtual machines: services, port-forward, statistics, terminals, config maps.
//! PINION_VM_IMAGE is the directory of an image
//! (`pinion vm image`).

mod terminal;

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Stdio};

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, PodSpec, node_with_guests, wait_until};
use terminal::Terminal;

const IMAGE: &str = "docker.io/library/demo:1";

/// Starts a pod and a container in it, in a virtual machine. Returns their ids.
fn run_by_crictl(node: &Node, change: impl FnOnce(&mut Value), command: &[&str]) -> (String, String) {
    run_container_by_crictl(node, change, ContainerSpec::new("app", IMAGE, command))
}

fn run_container_by_crictl(node: &Node, change: impl FnOnce(&mut Value), container: ContainerSpec) -> (String, String) {
    let mut pod = PodSpec::named(node, "guest");
    change(&mut pod.0);
    let file = node.file("guest.json", &pod.0);
    let pod_id = node.crictl(&["--timeout", "60s", "runp", "--runtime", "vm", &file]).ok();
    let id = node.run_container(&pod_id, &pod, &container);
    (pod_id, id)
}

#[test]
fn statistics_are_those_of_the_guest() {
    let node = node_with_guests("");
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
    let node = node_with_guests("");
    let forwarded = |pod: &mut Value| {
        pod["port_mappings"] = json!([{"container_port": 80, "host_port": 8090, "protocol": 0}]);
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

/// Writes a config map as the kubelet does: in a new directory, to which a link is moved.
fn write_config_map(volume: &Path, version: &str, text: &str) {
    let directory = volume.join(version);
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("key"), text).expect("a file");
    symlink(version, volume.join("..data_tmp")).expect("a link");
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("moved");
}

#[test]
fn a_config_map_changes_in_the_guest() {
    let node = node_with_guests("");
    let volume = node.dir.path().join("config");
    fs::create_dir(&volume).expect("a volume");
    write_config_map(&volume, "..1", "first");
    symlink("..data/key", volume.join("key")).expect("a link");
    let mut container = ContainerSpec::new("app", IMAGE, &["sleep", "1000"]);
    container.0["mounts"] = json!([{"container_path": "/config", "host_path": volume, "readonly": true}]);
    let (_, id) = run_container_by_crictl(&node, |_| {}, container);
    let read = || node.crictl(&["exec", &id, "cat", "/config/key"]).stdout;
    assert_eq!(read(), "first");
    write_config_map(&volume, "..2", "second");
    fs::remove_dir_all(volume.join("..1")).expect("removed");
    wait_until("the guest sees the new version", || read() == "second");
    assert!(node.crictl(&["exec", &id, "touch", "/config/other"]).code != Some(0), "it is read-only");
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_terminal_of_a_command_in_a_guest() {
    let node = node_with_guests("");
    let (_, id) = run_by_crictl(&node, |_| {}, &["sleep", "1000"]);
    let crictl = env::var("CRICTL").expect("CRICTL names the crictl program");
    let line = format!(
        "{crictl} --config /dev/null -r unix:///run/pinion/pinion.sock exec -it {id} sh -c \
         'tty; read line; stty size; echo got-$line'"
    );
    let mut exec = Terminal::run(&node, &line);
    exec.see("/dev/pts/");
    exec.type_in("hello\r");
    exec.see("24 80");
    exec.see("got-hello");
    assert_eq!(exec.end(), Some(0));
    node.remove_all_pods();
    node.end();
}

#[test]
fn an_interface_has_a_queue_for_each_processor_of_the_boot() {
    let node = node_with_guests("cpus = 2");
    node.pinion(&["run", "-d", "--runtime", "vm", "--name", "app", IMAGE, "sleep", "10000"]).ok();
    let inside = |command: &str| node.pinion(&["exec", "app", "sh", "-c", command]).ok();
    assert_eq!(
        inside("nproc; ls /sys/class/net/eth0/queues").split_whitespace().collect::<Vec<_>>().join(" "),
        "2 rx-0 rx-1 tx-0 tx-1"
    );
    let route = inside("ip route show default");
    let gateway = route.split_whitespace().nth(2).expect("a default route");
    for processor in ["1", "2"] {
        inside(&format!("taskset {processor} ping -c 2 -W 10 {gateway}"));
    }
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}
