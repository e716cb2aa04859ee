//! Guests that begin from a template: the state of one that has booted. PINION_VM_IMAGE is the directory of an image.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, OpenOptions},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::json;
use system_tests::{ContainerSpec, Node, PodSpec, Process, node_with_guests, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
const MIB: u64 = 1 << 20;

fn node(keys: &str) -> Node {
    node_with_guests(&format!("template = true\n{keys}"))
}

/// Starts a container in a virtual machine of its own, without waiting for it.
fn begin(node: &Node, name: &str) -> Child {
    let program = env::var("PINION_BIN").expect("PINION_BIN is the directory of the programs") + "/pinion";
    let mut command = node.command(program);
    command.args(["run", "-d", "--runtime", "vm", "--pod", name, "--name", name, IMAGE, "sleep", "10000"]);
    command.stdout(Stdio::null()).spawn().expect("a client")
}

fn run(node: &Node, name: &str) {
    assert!(begin(node, name).wait().expect("exit").success(), "{}", node.daemon_log());
}

fn shell(node: &Node, name: &str, command: &str) -> String {
    node.pinion(&["exec", name, "sh", "-c", command]).ok()
}

fn hypervisors(node: &Node) -> Vec<Process> {
    let is_one = |process: &Process| process.command_line().contains("qemu-system");
    node.processes().into_iter().filter(is_one).collect()
}

/// Whether guests loaded a template, one entry for each guest.
fn loaded(node: &Node) -> Vec<bool> {
    hypervisors(node).iter().map(|process| process.command_line().contains("-incoming")).collect()
}

/// Returns the complete templates of the handler.
fn templates(node: &Node) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(node.dir.path().join("data/vm-templates/vm")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_none()).collect()
}

fn wait_for_template(node: &Node) -> PathBuf {
    wait_until("there is a template", || templates(node).len() == 1);
    templates(node).remove(0)
}

fn end(node: Node, names: &[&str]) {
    node.pinion(&[&["rm", "-f"], names].concat()).ok();
    node.remove_all_pods();
    assert!(hypervisors(&node).is_empty(), "nothing of the virtual machines is left");
    node.end();
}

#[test]
fn guests_from_a_template_differ_in_all_that_is_theirs() {
    let mut node = node("");
    run(&node, "first");
    assert_eq!(loaded(&node), [false], "the first one boots");
    let template = wait_for_template(&node);
    let memory = fs::metadata(template.join("memory")).expect("the memory");
    assert_eq!(memory.size(), 256 * MIB);
    assert!(memory.blocks() * 512 < 160 * MIB, "pages of zeros take no space: {} blocks", memory.blocks());
    run(&node, "second");
    node.kill_daemon();
    node.start_daemon();
    run(&node, "third");
    let names = ["first", "second", "third"];
    assert_eq!(loaded(&node).iter().filter(|is_loaded| **is_loaded).count(), 2);
    let different =
        |command: &str| -> BTreeSet<String> { names.iter().map(|name| shell(&node, name, command)).collect() };
    for command in [
        "cat /proc/sys/kernel/random/boot_id",
        "head -c 16 /dev/urandom | od -x",
        "cat /proc/sys/kernel/random/uuid",
        "hostname",
        "cat /sys/class/net/eth0/address",
        "ip -4 address show dev eth0 | grep inet",
    ] {
        assert_eq!(different(command).len(), 3, "{command}: {:?}", different(command));
    }
    assert_eq!(different("uname -r; nproc; cat /proc/1/comm").len(), 1);
    let now = || node.run("date", &["+%s"]).ok().trim().parse::<i64>().expect("seconds");
    for name in names {
        let guest: i64 = shell(&node, name, "date +%s").parse().expect("seconds");
        assert!((guest - now()).abs() <= 5, "{name} is {} s late", now() - guest);
        let lines = shell(&node, name, "seq 1 20000");
        assert_eq!(lines.lines().count(), 20_000, "{name}");
        let route = shell(&node, name, "ip route show default");
        let gateway = route.split_whitespace().nth(2).expect("a default route");
        shell(&node, name, &format!("ping -c 1 -W 10 {gateway}"));
    }
    end(node, &names);
}

#[test]
fn a_guest_from_a_template_can_get_memory_and_processors() {
    let node = node("memory_max = 1073741824\ncpus_max = 2");
    run(&node, "first");
    wait_for_template(&node);
    let pod = PodSpec::named(&node, "large");
    let sandbox = node.crictl(&["runp", "--runtime", "vm", &node.file("pod.json", &pod.0)]).ok();
    let mut spec = ContainerSpec::new("app", IMAGE, &["sleep", "10000"]);
    spec.0["linux"]["resources"] =
        json!({ "memory_limit_in_bytes": 700 * MIB, "cpu_period": 100_000, "cpu_quota": 150_000 });
    let id = node.create_container(&sandbox, &pod, &spec).ok();
    node.crictl(&["start", &id]).ok();
    assert!(loaded(&node).contains(&true));
    assert_eq!(shell(&node, &id, "nproc"), "2");
    assert_eq!(shell(&node, &id, "dd if=/dev/zero bs=600M count=1 2>/dev/null | md5sum | cut -c1-32").len(), 32);
    let total = shell(&node, &id, "awk '/^MemTotal/ { print $2 }' /proc/meminfo").parse::<u64>().expect("kB");
    assert!((900..1024).contains(&(total / 1024)), "{total}");
    node.crictl(&["rm", "-f", &id]).ok();
    end(node, &["first"]);
}

#[test]
fn a_template_that_cannot_be_loaded_costs_no_pod() {
    let node = node("");
    run(&node, "first");
    let template = wait_for_template(&node);
    let state = OpenOptions::new().write(true).open(template.join("state")).expect("the state");
    state.set_len(state.metadata().expect("metadata").len() / 2).expect("cut");
    run(&node, "second");
    assert_eq!(loaded(&node), [false, false], "it boots after all");
    assert!(templates(&node).is_empty(), "the template is removed");
    assert!(node.daemon_log().contains("does not continue from its template"), "{}", node.daemon_log());
    run(&node, "third");
    assert_eq!((loaded(&node), templates(&node).len()), (vec![false; 3], 0), "templates are not tried again");
    end(node, &["first", "second", "third"]);
}

#[test]
fn pods_do_not_wait_for_the_template_of_another() {
    let node = node("");
    let names = ["a", "b", "c"];
    let clients: Vec<Child> = names.iter().map(|name| begin(&node, name)).collect();
    for mut client in clients {
        assert!(client.wait().expect("exit").success(), "{}", node.daemon_log());
    }
    assert_eq!(loaded(&node), [false; 3]);
    wait_for_template(&node);
    run(&node, "d");
    assert_eq!(loaded(&node).iter().filter(|is_loaded| **is_loaded).count(), 1);
    end(node, &["a", "b", "c", "d"]);
}
