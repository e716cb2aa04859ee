//! Networking of pods: connections between pods, the node and other machines, configuration files, CNI plugins, and
//! that nothing is leaked.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, PodSpec, wait_until};

const SERVE: [&str; 6] = ["httpd", "-f", "-p", "80", "-h", "/www"];

fn node() -> Node {
    let node = Node::start();
    node.load_image();
    // The uplink to other machines.
    node.run("sh", &["-c", "ip link add up0 type bridge && ip addr add 192.0.2.1/24 dev up0 && ip link set up0 up"])
        .ok();
    node
}

/// Runs a pod with a web server. Returns its address and the id of the container.
fn web(node: &Node, pod: &PodSpec) -> (String, String) {
    let pod_id = node.run_pod(pod);
    let id = node.run_container(&pod_id, pod, &ContainerSpec::new("server", "demo:1", &SERVE));
    let address = address(node, &pod_id);
    wait_for_page(node, &format!("http://{address}/"));
    (address, id)
}

fn address(node: &Node, pod_id: &str) -> String {
    node.crictl(&["inspectp", pod_id]).json()["status"]["network"]["ip"].as_str().unwrap().to_owned()
}

fn wait_for_page(node: &Node, url: &str) {
    wait_until(&format!("{url} responds"), || {
        node.run("curl", &["-fsS", "-m", "2", url]).stdout.contains("hello from a pod")
    });
}

/// Checks that no object of a pod is left on the network of the node.
#[track_caller]
fn assert_nothing_left(node: &Node) {
    // Links and their addresses are removed asynchronously.
    let links = "ip -o link | grep -cvE '^[0-9]+: (lo|up0|pinion0):'";
    wait_until("no link of a pod exists", || node.run("sh", &["-c", links]).stdout.trim() == "0");
    let find = "find /run/pinion/network -type f \\( -name '[0-9]*.[0-9]*' -o -name '*.json' \\)";
    wait_until("there are no address leases or attachment records", || node.run("sh", &["-c", find]).stdout.is_empty());
    assert_eq!(node.run("sh", &["-c", "ls -A /run/netns"]).stdout, "");
}

#[test]
fn containers_of_a_pod_share_localhost_and_pods_reach_each_other() {
    let node = node();
    let pod = PodSpec::named(&node, "web");
    let pod_id = node.run_pod(&pod);
    node.run_container(&pod_id, &pod, &ContainerSpec::new("server", "demo:1", &SERVE));
    let client = node.run_container(&pod_id, &pod, &ContainerSpec::new("client", "demo:1", &["sleep", "1000"]));
    wait_until("the client reaches the server on localhost", || {
        let page = node.crictl(&["exec", "-s", &client, "wget", "-qO-", "http://127.0.0.1/"]);
        page.stdout.contains("hello from a pod")
    });
    let other = PodSpec::named(&node, "other");
    let other_id = node.run_pod(&other);
    let far = node.run_container(&other_id, &other, &ContainerSpec::new("far", "demo:1", &["sleep", "1000"]));
    let address = address(&node, &pod_id);
    let page = node.crictl(&["exec", "-s", &far, "wget", "-qO-", &format!("http://{address}/")]).ok();
    assert!(page.contains("hello from a pod"), "{page}");
    let localhost = node.crictl(&["exec", "-s", &far, "wget", "-qO-", "-T", "2", "http://127.0.0.1/"]);
    assert_ne!(localhost.code, Some(0), "the localhost of another pod is separate");
    node.remove_all_pods();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn host_ports_are_forwarded_to_pods() {
    let node = node();
    let mut pod = PodSpec::named(&node, "web");
    pod.0["port_mappings"] = json!([{"protocol": 0, "container_port": 80, "host_port": 8080}]);
    web(&node, &pod);
    for host in ["192.0.2.1", "127.0.0.1", "10.85.0.1"] {
        wait_for_page(&node, &format!("http://{host}:8080/"));
    }

    // From another pod, and from another machine.
    let other = PodSpec::named(&node, "other");
    let other_id = node.run_pod(&other);
    let far = node.run_container(&other_id, &other, &ContainerSpec::new("far", "demo:1", &["sleep", "1000"]));
    let page = node.crictl(&["exec", "-s", &far, "wget", "-qO-", "http://192.0.2.1:8080/"]).ok();
    assert!(page.contains("hello from a pod"), "{page}");
    let machine = Machine::connect(&node);
    let page = machine.run(&node, "curl -fsS -m 5 http://198.51.100.1:8080/");
    assert!(page.contains("hello from a pod"), "{page}");
    // Connections of a pod to other machines come from the address of the node. The server there sends a list of its
    // connections to every client (proc_net_tcp(5): addresses in hexadecimal).
    machine.run(&node, "busybox nc -ll -p 7000 -e cat /proc/net/tcp /proc/net/tcp6 >/dev/null 2>&1 &");
    let from = format!("{:08X}:", u32::from_ne_bytes([198, 51, 100, 1]));
    wait_until("the other machine sees the connection from the address of the node", || {
        node.crictl(&["exec", "-s", &far, "nc", "198.51.100.2", "7000"]).stdout.contains(&from)
    });
    machine.stop(&node);

    // A port can be mapped to only one pod.
    let mut second = PodSpec::named(&node, "second");
    second.0["port_mappings"] = json!([{"protocol": 0, "container_port": 80, "host_port": 8080}]);
    let file = node.file("second.json", &second.0);
    let error = node.crictl(&["runp", &file]).error();
    let first = node.crictl(&["pods", "--name", "web", "-q"]).ok();
    assert!(error.contains("8080") && error.contains(&first[..12]), "{error}");
    assert_eq!(node.crictl(&["pods", "--name", "second", "-q"]).ok(), "");
    node.crictl(&["rmp", "-f", &first]).ok();
    assert_ne!(
        node.run("curl", &["-fsS", "-m", "2", "http://192.0.2.1:8080/"]).code,
        Some(0),
        "the port is still forwarded"
    );
    web(&node, &second);
    wait_for_page(&node, "http://192.0.2.1:8080/");
    node.remove_all_pods();
    assert_nothing_left(&node);
    node.end();
}

/// Another machine, one hop from the node: 198.51.100.2, connected to 198.51.100.1.
struct Machine {
    pid: i32,
}

impl Machine {
    fn connect(node: &Node) -> Self {
        let script = "unshare --net sleep 1000 >/dev/null 2>&1 & echo $!";
        let pid: i32 = node.run("sh", &["-c", script]).ok().parse().unwrap();
        let link = format!(
            "ip link add ext0 type veth peer name ext1 && ip link set ext1 netns {pid} && ip addr add 198.51.100.1/24 dev ext0 && ip link set ext0 up"
        );
        wait_until("the other machine is running", || {
            node.run(
                "sh",
                &["-c", &format!("test \"$(readlink /proc/{pid}/ns/net)\" != \"$(readlink /proc/self/ns/net)\"")],
            )
            .code
                == Some(0)
        });
        node.run("sh", &["-c", &link]).ok();
        let machine = Self { pid };
        machine.run(node, "ip link set lo up; ip addr add 198.51.100.2/24 dev ext1; ip link set ext1 up");
        machine
    }

    fn run(&self, node: &Node, script: &str) -> String {
        node.run("nsenter", &["--target", &self.pid.to_string(), "--net", "sh", "-c", script]).ok()
    }

    fn stop(&self, node: &Node) {
        node.run("ip", &["link", "del", "ext0"]).ok();
        let processes = node.processes().into_iter().filter(|process| !process.name.starts_with("pin"));
        let node_netns = fs::read_link(format!("/proc/{}/ns/net", node.init_pid())).unwrap();
        for process in processes.filter(|process| process.pid == self.pid || process.name == "busybox") {
            assert_ne!(fs::read_link(process.directory.join("ns/net")).unwrap(), node_netns);
            node.kill(&process);
        }
    }
}

#[test]
fn a_pod_in_the_network_namespace_of_the_node() {
    let node = node();
    let mut pod = PodSpec::named(&node, "host");
    pod.0["linux"]["security_context"]["namespace_options"]["network"] = json!(2);
    let pod_id = node.run_pod(&pod);
    let mut spec = ContainerSpec::new("host", "demo:1", &["httpd", "-f", "-p", "8081", "-h", "/www"]);
    spec.0["linux"]["security_context"]["namespace_options"]["network"] = json!(2);
    let id = node.run_container(&pod_id, &pod, &spec);
    wait_for_page(&node, "http://192.0.2.1:8081/");
    let inside = node.crictl(&["exec", "-s", &id, "readlink", "/proc/self/ns/net"]).ok();
    assert_eq!(inside, node.run("readlink", &["/proc/self/ns/net"]).ok());
    assert_eq!(node.crictl(&["exec", "-s", &id, "hostname"]).ok(), node.run("hostname", &[]).ok());
    node.remove_all_pods();
    assert_nothing_left(&node);
    node.end();
}

#[test]
fn names_and_sysctls_of_a_pod() {
    let node = node();
    let mut pod = PodSpec::named(&node, "named");
    pod.0["hostname"] = json!("web-1");
    pod.0["dns_config"] = json!({"servers": ["192.0.2.53"], "searches": ["a.test", "b.test"], "options": ["ndots:2"]});
    pod.0["linux"]["sysctls"] = json!({"net.core.somaxconn": "517", "net.ipv4.ip_unprivileged_port_start": "0",
                                            "kernel.domainname": "example.test"});
    let pod_id = node.run_pod(&pod);
    let spec = ContainerSpec::new("reader", "demo:1", &["sleep", "1000"]);
    let id = node.run_container(&pod_id, &pod, &spec);
    let read = |path: &str| node.crictl(&["exec", "-s", &id, "cat", path]).ok();
    assert_eq!(read("/etc/hostname"), "web-1");
    assert_eq!(node.crictl(&["exec", "-s", &id, "hostname"]).ok(), "web-1");
    let address = address(&node, &pod_id);
    let hosts = read("/etc/hosts");
    let has_entry = |ip: &str, name: &str| {
        hosts.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(ip) && words.any(|word| word == name)
        })
    };
    assert!(has_entry("127.0.0.1", "localhost") && has_entry(&address, "web-1"), "{hosts}");
    let resolver = read("/etc/resolv.conf");
    assert_eq!(resolver, "search a.test b.test\nnameserver 192.0.2.53\noptions ndots:2");
    assert_eq!(read("/proc/sys/net/core/somaxconn"), "517");
    assert_eq!(read("/proc/sys/net/ipv4/ip_unprivileged_port_start"), "0");
    assert_ne!(fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim(), "517", "the value of the node");

    for (key, value) in [("vm.swappiness", "10"), ("net.core.no_such_thing", "1"), ("net.core.somaxconn", "many")] {
        let mut invalid = PodSpec::named(&node, "invalid");
        invalid.0["linux"]["sysctls"] = json!({key: value});
        let file = node.file("invalid.json", &invalid.0);
        let error = node.crictl(&["runp", &file]).error();
        assert!(error.contains(key), "{error}");
    }
    assert_eq!(node.crictl(&["pods", "--name", "invalid", "-q"]).ok(), "");
    node.remove_all_pods();
    assert_nothing_left(&node);
    node.end();
}

/// A third-party CNI plugin: records its calls and adds an interface to the pod.
const PLUGIN: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME" >> "$here/calls"
cat > "$here/$CNI_COMMAND.json"
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD)
  if test -e "$here/full"; then
    echo '{"cniVersion": "1.0.0", "code": 101, "msg": "no address is free in 203.0.113.0/24"}'
    exit 1
  fi
  nsenter --net="$CNI_NETNS" ip link add "$CNI_IFNAME" type veth peer name other &&
  nsenter --net="$CNI_NETNS" ip addr add 203.0.113.7/24 dev "$CNI_IFNAME" &&
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"address": "203.0.113.7/24", "interface": 0}]}'
  ;;
DEL)
  if [ -e "$here/busy" ]; then
    echo '{"cniVersion": "1.0.0", "code": 11, "msg": "busy, try again"}'
    exit 1
  fi
  ;;
esac
"#;

#[test]
fn a_network_of_a_third_party_plugin() {
    let plugins = tempfile::tempdir().unwrap();
    let program = plugins.path().join("noted");
    fs::write(&program, PLUGIN).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let list = json!({"cniVersion": "1.0.0", "name": "theirs", "plugins": [
        {"type": "noted", "color": "blue", "capabilities": {"portMappings": true}},
    ]});
    let node = Node::with(Options {
        config: format!("network.cni_bin_dirs = [\"{}\"]", plugins.path().display()),
        cni: vec![("10-theirs.conflist".to_owned(), list.to_string())],
        ..Options::default()
    });
    node.load_image();
    let mut pod = PodSpec::named(&node, "theirs");
    pod.0["port_mappings"] = json!([{"protocol": 0, "container_port": 80, "host_port": 8080}]);
    let pod_id = node.run_pod(&pod);
    assert_eq!(address(&node, &pod_id), "203.0.113.7");
    let request = read_json(&plugins.path().join("ADD.json"));
    assert_eq!(
        (&request["name"], &request["type"], &request["color"]),
        (&json!("theirs"), &json!("noted"), &json!("blue"))
    );
    assert_eq!(request["runtimeConfig"]["portMappings"][0]["hostPort"], 8080, "{request}");
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("c", "demo:1", &["sleep", "1000"]));
    assert!(node.crictl(&["exec", "-s", &id, "ip", "addr", "show", "eth0"]).ok().contains("203.0.113.7/24"));
    node.crictl(&["stopp", &pod_id]).ok();
    let request = read_json(&plugins.path().join("DEL.json"));
    assert_eq!(request["prevResult"]["ips"][0]["address"], "203.0.113.7/24", "{request}");
    let calls = |command: &str| {
        let line = format!("{command} {pod_id} eth0");
        fs::read_to_string(plugins.path().join("calls")).unwrap().lines().filter(|call| *call == line).count()
    };
    assert_eq!((calls("ADD"), calls("DEL")), (1, 1));
    node.crictl(&["rmp", &pod_id]).ok();
    assert_eq!((calls("ADD"), calls("DEL")), (1, 1));

    // An error contains the plugin's message, and the attachment is rolled back with DEL.
    fs::write(plugins.path().join("full"), "").unwrap();
    let file = node.file("full.json", &PodSpec::named(&node, "full").0);
    let error = node.crictl(&["runp", &file]).error();
    assert!(error.contains("noted") && error.contains("no address is free in 203.0.113.0/24"), "{error}");
    let all = fs::read_to_string(plugins.path().join("calls")).unwrap();
    let last: Vec<&str> = all.lines().rev().take(2).collect();
    assert!(last[0].starts_with("DEL ") && last[1].starts_with("ADD "), "{all}");
    assert_eq!(node.crictl(&["pods", "-q"]).ok(), "");

    // A rollback that fails is retried soon, and not only by the reconciler a minute later.
    let busy = plugins.path().join("busy");
    fs::write(&busy, "").unwrap();
    let file = node.file("busy.json", &PodSpec::named(&node, "busy").0);
    let error = node.crictl(&["runp", &file]).error();
    assert!(error.contains("no address is free") && error.contains("busy, try again"), "{error}");
    assert_ne!(node.crictl(&["pods", "-q"]).ok(), "", "it exists until it is rolled back");
    fs::remove_file(busy).unwrap();
    wait_until("the pod is removed", || node.crictl(&["pods", "-q"]).ok().is_empty());
    assert_nothing_left(&node);
    node.end();
}

/// A plugin that reports addresses by interface. Its `CHECK` fails while the file `broken` is next to it.
const ADDRESSES: &str = r#"#!/bin/sh
here=$(dirname "$0")
cat > /dev/null
echo "$CNI_COMMAND $CNI_IFNAME" >> "$here/calls"
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'", "mac": "02:00:00:00:00:01"}],
    "ips": [{"address": "203.0.113.7/24", "interface": 0}]}' ;;
CHECK) test ! -e "$here/broken" || { echo '{"cniVersion": "1.0.0", "code": 100, "msg": "the address is gone"}'; exit 1; } ;;
esac
"#;

#[test]
fn a_pod_of_several_networks_is_shown_and_checked() {
    let plugins = tempfile::tempdir().unwrap();
    let program = plugins.path().join("addresses");
    fs::write(&program, ADDRESSES).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let list =
        |name: &str| json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "addresses"}]}).to_string();
    let mut node = Node::with(Options {
        config: format!(
            "network.cni_bin_dirs = [\"{}\"]\nnetwork.selectable = [\"storage\", \"pinion\"]",
            plugins.path().display()
        ),
        cni: vec![
            ("10-theirs.conflist".to_owned(), list("theirs")),
            ("20-storage.conflist".to_owned(), list("storage")),
        ],
        ..Options::default()
    });
    let mut pod = PodSpec::named(&node, "several");
    pod.0["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": "storage@st0,pinion"});
    let pod_id = node.run_pod(&pod);
    let status = |node: &Node| node.crictl(&["inspectp", &pod_id]).json();
    assert_eq!(status(&node)["status"]["network"]["ip"], "203.0.113.7");
    assert_eq!(status(&node)["status"]["network"]["additionalIps"], json!([]), "addresses of the primary network only");
    let networks = status(&node)["info"]["k8s.v1.cni.cncf.io/network-status"].clone();
    let shown = |index: usize| (networks[index]["name"].clone(), networks[index]["interface"].clone());
    assert_eq!(shown(0), (json!("theirs"), json!("eth0")), "{networks}");
    let namespace = pod.0["metadata"]["namespace"].as_str().unwrap().to_owned();
    assert_eq!(shown(1), (json!(format!("{namespace}/storage")), json!("st0")), "{networks}");
    assert_eq!(shown(2), (json!(format!("{namespace}/pinion")), json!("net2")), "{networks}");

    // A check on request, and of a new daemon.
    let checked = node.pinion(&["inspect", "--check", &pod_id]);
    assert_eq!((checked.code, checked.json()[0]["check"]["network"].clone()), (Some(0), json!("no problem")));
    fs::write(plugins.path().join("broken"), "").unwrap();
    let checked = node.pinion(&["inspect", "--check", &pod_id]);
    assert_eq!(checked.code, Some(1), "{}", checked.stderr);
    let shown: Value = serde_json::from_str(&checked.stdout).unwrap();
    let problem = shown[0]["check"]["network"].as_str().unwrap_or_default();
    assert!(problem.contains("the address is gone (code 100)"), "{shown}");
    fs::remove_file(plugins.path().join("broken")).unwrap();
    assert_eq!(node.pinion(&["inspect", "--check", &pod_id]).code, Some(0));
    fs::write(plugins.path().join("broken"), "").unwrap();
    node.kill_daemon();
    node.start_daemon();
    wait_until("the check of the new daemon", || status(&node)["info"]["networkCheck"].is_string());
    assert!(node.pinion(&["why", &pod_id]).ok().contains("CNI plugin addresses CHECK"));
    assert_eq!(status(&node)["status"]["state"], "SANDBOX_READY");

    let refused = node.file("refused.json", &{
        let mut pod = PodSpec::named(&node, "refused");
        pod.0["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": "theirs"});
        pod.0
    });
    let error = node.crictl(&["runp", &refused]).error();
    assert!(error.contains("InvalidArgument") && error.contains("network.selectable"), "{error}");
    node.crictl(&["rmp", "-f", &pod_id]).ok();
    let calls = fs::read_to_string(plugins.path().join("calls")).unwrap();
    assert!(calls.ends_with("DEL st0\nDEL eth0\n"), "{calls}");
    assert_nothing_left(&node);
    node.end();
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
