//! Pods in virtual machines: they behave like any other pod, and outlive daemon and monitor. Guests are emulated if this
//! machine cannot run them. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{env, fs, path::Path, time::Duration};

use cri_proto::v1::{
    CheckpointPodRequest, LinuxContainerResources, UpdatePodSandboxResourcesRequest,
    runtime_service_client::RuntimeServiceClient,
};
use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, PodSpec, Process, node_with_guests, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
/// The processes of a virtual machine.
const PROGRAMS: [&str; 2] = ["qemu-system-x86", "virtiofsd"];

fn node() -> Node {
    node_with_guests("")
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

const MIB: u64 = 1 << 20;
/// Has 600 MiB of memory in use while the file `hold` exists.
const HOLD: &str = "while :; do
    while [ ! -e /volume/hold ]; do sleep 0.2; done
    dd if=/dev/zero bs=600M count=1 2>/dev/null | while [ -e /volume/hold ]; do sleep 0.2; done
done";

/// A container with limits in a virtual machine.
struct Limited<'a> {
    node: &'a Node,
    id: String,
}

impl Limited<'_> {
    fn shell(&self, command: &str) -> system_tests::Outcome {
        self.node.pinion(&["exec", &self.id, "sh", "-c", command])
    }

    fn number(&self, command: &str) -> u64 {
        let text = self.shell(command).ok();
        text.parse().unwrap_or_else(|_| panic!("{command}: {text}"))
    }

    /// Returns the memory of the guest in MiB.
    fn guest_memory(&self) -> u64 {
        let text = self.shell("cat /proc/meminfo").ok();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("MemTotal");
        total.trim().trim_end_matches(" kB").parse::<u64>().expect("kB") / 1024
    }

    /// Returns the memory limit in the guest in MiB.
    fn limit(&self) -> u64 {
        self.number("cat /sys/fs/cgroup/memory.max") / MIB
    }

    /// Uses this much memory at once. Returns the exit code.
    fn use_memory(&self, mib: u64) -> Option<i32> {
        self.shell(&format!("dd if=/dev/zero of=/dev/null bs={mib}M count=1 2>/dev/null")).code
    }

    /// Returns the anonymous memory in MiB.
    fn used(&self) -> u64 {
        self.number("awk '/^anon / { print $2 }' /sys/fs/cgroup/memory.stat") / MIB
    }

    fn cpus(&self) -> u64 {
        self.number("nproc")
    }

    /// Changes limits with UpdateContainerResources: MiB, and processors in percent.
    fn update(&self, memory: u64, cpus: u64) -> system_tests::Outcome {
        let (memory, quota) = ((memory * MIB).to_string(), (cpus * 1000).to_string());
        let cpus = ["--cpu-period", "100000", "--cpu-quota", &quota];
        self.node.crictl(&[&["update", "--memory", &memory][..], &cpus, &[&self.id]].concat())
    }
}

/// Creates and starts a container with a memory limit in MiB in the only pod.
fn run_limited<'a>(node: &'a Node, name: &str, memory: u64, command: &str, volume: &Path) -> Limited<'a> {
    let id = create_limited(node, name, memory, command, volume).ok();
    node.crictl(&["start", &id]).ok();
    Limited { node, id }
}

fn create_limited(node: &Node, name: &str, memory: u64, command: &str, volume: &Path) -> system_tests::Outcome {
    let mut spec = ContainerSpec::new(name, IMAGE, &["sh", "-c", command]);
    spec.0["linux"]["resources"] = json!({ "memory_limit_in_bytes": memory * MIB });
    spec.0["mounts"] = json!([{ "host_path": volume, "container_path": "/volume" }]);
    let pod = node.crictl(&["pods", "-q"]).ok();
    node.create_container(&pod, &PodSpec::named(node, "size"), &spec)
}

/// Returns the memory limit that QEMU has on the node, in MiB.
fn limit_on_node(node: &Node) -> u64 {
    let limit = |process: &Process| {
        let groups = node.run("cat", &[&format!("/proc/{}/cgroup", process.pid)]).ok();
        let group =
            |controller: &str| groups.lines().find_map(|line| line.split_once(controller).map(|(_, path)| path));
        let file = match (group(":memory:"), group("0::")) {
            (Some(path), _) => format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"),
            (None, path) => format!("/sys/fs/cgroup{}/memory.max", path.expect("a cgroup")),
        };
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        text.trim().parse::<u64>().expect("a limit") / MIB
    };
    let guests = guests(node);
    limit(guests.iter().find(|process| process.command_line().contains(PROGRAMS[0])).expect("QEMU"))
}

/// Sets the memory limit of the only pod and its overhead with UpdatePodSandboxResources, in MiB.
fn update_pod(node: &Node, memory: u64, overhead: u64) {
    let limits = |mib: u64| LinuxContainerResources {
        memory_limit_in_bytes: (mib * MIB).cast_signed(),
        ..LinuxContainerResources::default()
    };
    let request = UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: node.crictl(&["pods", "-q"]).ok(),
        overhead: Some(limits(overhead)),
        resources: Some(limits(memory)),
    };
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let updated = runtime.block_on(async {
        let channel = cri_proto::connect(&socket).await.expect("connect to the daemon");
        RuntimeServiceClient::new(channel).update_pod_sandbox_resources(request).await
    });
    updated.expect("the pod is updated");
}

/// Waits until the guest has given memory back, which takes an emulated one a while.
fn wait_for_memory(container: &Limited<'_>, mib: u64) {
    testbed::wait_until("the guest gives memory back", Duration::from_secs(120), || container.guest_memory() == mib);
}

#[test]
fn a_guest_has_the_memory_and_the_processors_that_limits_allow() {
    let mut node = node_with_guests("memory_max = 2147483648\ncpus_max = 3");
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    let pattern: Vec<u8> = (0..200 * MIB).map(|index| (index / 4096 % 251) as u8).collect();
    fs::write(volume.join("file"), &pattern).expect("a file");
    run(&node, "size", "unlimited", "sleep 1000");
    let app = run_limited(&node, "app", 256, HOLD, &volume);
    let base = app.guest_memory() - 256;
    assert!(
        (200..256).contains(&base),
        "the kernel needs little of the memory that the guest boots with, not {base} MiB"
    );
    assert_eq!((app.limit(), app.cpus()), (256, 1));
    assert_eq!(app.use_memory(300), Some(137), "the OOM killer of the guest ends it");
    assert_eq!(app.use_memory(600), Some(1), "the guest does not have that much");

    let expected = |added: u64| 1536 + 256 / 128 + added + added / 128;
    assert_eq!(limit_on_node(&node), expected(256), "base, translated code, QEMU, page tables, and what was added");
    app.update(1024, 150).ok();
    assert_eq!(limit_on_node(&node), expected(1024));
    assert_eq!((app.limit(), app.cpus(), app.guest_memory()), (1024, 3, base + 1024));
    assert_eq!(app.shell("cat /sys/fs/cgroup/cpu.max").ok(), "150000 100000");
    assert_eq!(app.use_memory(600), Some(0));
    app.shell("cp /volume/file /volume/copy").ok();
    assert!(fs::read(volume.join("copy")).expect("a copy") == pattern, "files reach memory that was added, and back");

    node.kill_daemon();
    node.start_daemon();
    let app = Limited { node: &node, id: node.crictl(&["ps", "-q", "--name", "app"]).ok() };
    fs::write(volume.join("hold"), "").expect("a file");
    let limit = Duration::from_secs(60);
    testbed::wait_until("600 MiB are in use", limit, || app.used() >= 590);
    let error = app.update(256, 150).error();
    assert!(error.contains("in use and cannot be reclaimed"), "{error}");
    assert_eq!((app.limit(), app.guest_memory()), (1024, base + 1024), "nothing was changed");
    fs::remove_file(volume.join("hold")).expect("a file");
    wait_until("the memory is free", || app.used() < 100);
    app.update(256, 100).ok();
    assert_eq!(app.limit(), 256);
    wait_for_memory(&app, base + 256);
    assert_eq!(app.use_memory(300), Some(137), "the OOM killer of the guest ends it again");

    let other = run_limited(&node, "other", 100, "sleep 1000", &volume);
    assert_eq!((other.limit(), app.guest_memory()), (100, base + 384), "blocks of 128 MiB");
    assert_eq!(limit_on_node(&node), expected(384));
    node.crictl(&["rm", "-f", &other.id]).ok();
    wait_for_memory(&app, base + 256);
    let error = app.update(8192, 100).error();
    assert!(error.contains("ResourceExhausted") && error.contains("memory_max"), "{error}");
    let error = app.update(256, 400).error();
    assert!(error.contains("ResourceExhausted") && error.contains("cpus_max"), "{error}");
    let error = create_limited(&node, "huge", 8192, "sleep 1000", &volume).error();
    assert!(error.contains("ResourceExhausted") && error.contains("memory_max"), "{error}");
    assert_eq!((app.limit(), app.guest_memory()), (256, base + 256), "nothing was changed");
    assert!(!node.pinion(&["ps", "-a"]).ok().contains("huge"));
    let mut pod = PodSpec::named(&node, "huge");
    pod.0["linux"]["resources"] = json!({ "memory_limit_in_bytes": 8192 * MIB });
    let file = node.file("huge.json", &pod.0);
    let error = node.crictl(&["runp", "--runtime", "vm", &file]).error();
    assert!(error.contains("ResourceExhausted") && error.contains("memory_max"), "{error}");
    assert_eq!(guests(&node).len(), 2, "no other virtual machine was started");
    // An emulating QEMU needs more than others.
    update_pod(&node, 640, 640);
    assert_eq!(app.guest_memory(), base + 640, "for containers without a limit, too");
    node.remove_all_pods();
    node.end();
}

#[test]
fn programs_that_cannot_save_a_pod_refuse_it_with_the_reason() {
    let node = node();
    run(&node, "saved", "app", "sleep 1000");
    let output = node.dir.path().join("saved");
    fs::create_dir(&output).expect("a directory");
    let request = CheckpointPodRequest {
        pod_sandbox_id: node.crictl(&["pods", "-q"]).ok(),
        output_path: output.to_string_lossy().into_owned(),
        container_ids: vec![node.crictl(&["ps", "-q"]).ok()],
        ..CheckpointPodRequest::default()
    };
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let saved = runtime.block_on(async {
        let channel = cri_proto::connect(&socket).await.expect("connect to the daemon");
        RuntimeServiceClient::new(channel).checkpoint_pod(request).await
    });
    // Those of Debian 13 can (tests/external/vm-checkpoint).
    if let Err(status) = saved {
        assert_eq!(status.code(), tonic::Code::Unimplemented, "{status}");
        assert!(status.message().contains("install virtiofsd 1.13 or newer"), "{status}");
        assert_eq!(fs::read_dir(&output).expect("a directory").count(), 0);
    }
    assert_eq!(node.pinion(&["exec", "app", "echo", "alive"]).ok(), "alive");
    node.remove_all_pods();
    node.end();
}
