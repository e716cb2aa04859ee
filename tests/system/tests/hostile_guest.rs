//! Guests whose first process attacks the node (`crates/agent/src/hostile.rs`): each harms only its own pod. What was requested
//! fails in time with a clear error and is undone, the memory of the daemon stays bounded, and a native pod next to it is not
//! delayed. PINION_HOSTILE_IMAGE is the directory of an image whose agent is built with the feature `hostile`.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use system_tests::{ContainerSpec, Node, Options, Outcome, PodSpec, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
/// How long the agent in a guest may take to answer, in seconds.
const BOOT_TIMEOUT: u64 = 25;
/// How long a request to it may take, in seconds.
const TIMEOUT: u64 = 12;
/// Time limit of a request for a pod whose guest is hostile: both, a boot and its undoing.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time limit of each request for the native pod: less than any time limit for a guest.
const NATIVE_DEADLINE: Duration = Duration::from_secs(8);
/// How much the anonymous memory of the daemon may grow, in KiB.
const MEMORY_MAX: u64 = 48 << 10;
/// Longest error, in bytes.
const ERROR_MAX: usize = 6000;

/// Attacks before the pod is ready, and what the error of RunPodSandbox contains. The end of a virtual machine is reported by
/// whatever sees it first.
const AT_BOOT: [(&str, &str); 9] = [
    ("silent", "it has not answered for 25 s"),
    ("panic", "the virtual machine monitor has ended|the connection to the agent in the guest is closed"),
    ("garbage", "malformed frame"),
    ("huge-frame", "a frame of 4294967295 bytes is too long"),
    ("malformed", "malformed frame"),
    ("other-version", "of the contract, and this program version"),
    ("mute", "configure the guest: the agent in the guest has not answered for 12 s"),
    ("unsolicited", "configure the guest: it answers what was not requested"),
    ("wrong-reply", "configure the guest: the agent in the guest answered something else"),
];

/// Attacks of guests whose pod is ready.
const LATER: [&str; 5] = ["wrong-creation", "long-failure", "early-exits", "console", "flood"];
/// Maximum size of the log of a virtual machine monitor, in bytes: it is on a tmpfs of the node.
const CONSOLE_MAX: u64 = 64 << 10;

/// Makes an image for an attack: that of `source` with a further archive, which the kernel unpacks, too.
fn make_image(source: &Path, target: &Path, attack: &str) {
    fs::create_dir(target).expect("a directory");
    for name in ["kernel", "agent"] {
        let (file, link) = (source.join(name), target.join(name));
        fs::hard_link(&file, &link).or_else(|_| fs::copy(&file, &link).map(drop)).expect(name);
    }
    let mut initramfs = fs::read(source.join("initramfs")).expect("the initramfs");
    initramfs.resize(initramfs.len().next_multiple_of(4), 0);
    for (name, content) in [("hostile", attack), ("TRAILER!!!", "")] {
        // cpio(5), "New ASCII Format": inode, mode, uid, gid, links, time, size, device, device of the node, length of the name.
        let fields = [1, 0o100_644, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0]
            .map(|field| format!("{field:08x}"));
        write!(initramfs, "070701{}{name}\0", fields.concat()).expect("written");
        initramfs.resize(initramfs.len().next_multiple_of(4), 0);
        initramfs.extend_from_slice(content.as_bytes());
        initramfs.resize(initramfs.len().next_multiple_of(4), 0);
    }
    let text = fs::read(source.join("image.json")).expect("the description");
    let mut description: Value = serde_json::from_slice(&text).expect("JSON");
    description["initramfs_size"] = initramfs.len().into();
    fs::write(target.join("initramfs"), initramfs).expect("write");
    fs::write(target.join("image.json"), description.to_string()).expect("write");
}

/// A node with a handler for each attack, and their images.
fn node() -> (Node, tempfile::TempDir) {
    let source = env::var_os("PINION_HOSTILE_IMAGE").expect("PINION_HOSTILE_IMAGE is the directory of an image");
    let images = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a directory");
    let mut config = String::new();
    for attack in AT_BOOT.iter().map(|(attack, _)| *attack).chain(LATER) {
        let image = images.path().join(attack);
        make_image(Path::new(&source), &image, attack);
        config += &format!(
            "[handlers.{attack}]\nkind = \"vm\"\nallow_emulation = true\nboot_timeout = \"{BOOT_TIMEOUT}s\"\n\
             timeout = \"{TIMEOUT}s\"\nimage = \"{}\"\n",
            image.display()
        );
    }
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    (node, images)
}

/// Runs `crictl` with the time limit of a request for a hostile pod.
fn crictl(node: &Node, args: &[&str]) -> Outcome {
    let begin = Instant::now();
    let limit = format!("{}s", DEADLINE.as_secs());
    let outcome = node.crictl(&[&["--timeout", &limit][..], args].concat());
    assert!(begin.elapsed() < DEADLINE, "{args:?} took {} s", begin.elapsed().as_secs());
    println!("    {}: {} ms", args[0], begin.elapsed().as_millis());
    outcome
}

fn run_pod(node: &Node, attack: &str) -> (PodSpec, Outcome) {
    let pod = PodSpec::named(node, attack);
    let file = node.file(&format!("pod-{attack}.json"), &pod.0);
    let outcome = crictl(node, &["runp", "--runtime", attack, &file]);
    (pod, outcome)
}

/// Returns a directory and all below it. They may be removed in the meantime.
fn directories(root: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<String> = entries.filter(|path| path.is_dir()).flat_map(directories).collect();
    found.push(root.to_string_lossy().into_owned());
    found
}

/// Returns what exists of the pods on a node.
fn objects(node: &Node) -> BTreeMap<&'static str, Vec<String>> {
    let list = |script: &str| -> Vec<String> {
        let mut lines: Vec<String> = node.run("sh", &["-c", script]).ok().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let processes = node.processes().into_iter().filter(|process| process.state != 'Z');
    let guests = processes.map(|process| process.command_line());
    BTreeMap::from([
        ("processes", guests.filter(|line| line.contains("qemu") || line.contains("virtiofsd")).collect()),
        ("mounts", node.mountinfo().iter().filter(|line| line.contains("/run/netns/")).cloned().collect()),
        ("cgroups", node.cgroups().into_iter().flat_map(directories).collect()),
        ("records", list("ls -A /run/pinion/sandbox /run/pinion/container")),
        ("links", list("ip -o link | grep -E 'veth|vmtap' | cut -d: -f2 || true")),
        ("pods", list("ls -A /run/netns")),
    ])
}

/// Checks the error of a request, of which texts are expected that `|` separates.
#[track_caller]
fn assert_error(outcome: &Outcome, expected: &str) {
    let error = outcome.error();
    assert!(expected.split('|').any(|text| error.contains(text)), "{expected}: {error}");
    assert!(error.len() < ERROR_MAX, "{} bytes: {error}", error.len());
    assert!(!error.chars().any(|c| c.is_control() && c != '\n'), "{error:?}");
}

/// The anonymous memory of the daemon, in KiB.
fn memory(node: &Node) -> u64 {
    node.process("pinion").memory().expect("the daemon is running").anonymous
}

/// A native pod that is used all the time.
struct Neighbor<'a> {
    node: &'a Node,
    has_ended: AtomicBool,
    rounds: AtomicU64,
}

impl Neighbor<'_> {
    fn run(&self) {
        let pod = PodSpec::named(self.node, "native");
        let pod_id = self.node.run_pod(&pod);
        let first = self.node.run_container(&pod_id, &pod, &ContainerSpec::new("first", IMAGE, &["sleep", "9999"]));
        self.rounds.fetch_add(1, Ordering::SeqCst);
        while !self.has_ended.load(Ordering::SeqCst) {
            self.timed("exec", || drop(self.node.crictl(&["exec", "-s", &first, "true"]).ok()));
            let spec = ContainerSpec::new("next", IMAGE, &["sleep", "9999"]);
            let id = self.timed("start", || self.node.run_container(&pod_id, &pod, &spec));
            self.timed("stop", || drop(self.node.crictl(&["stop", "-t", "0", &id]).ok()));
            self.timed("remove", || drop(self.node.crictl(&["rm", &id]).ok()));
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        self.node.crictl(&["rmp", "-f", &pod_id]).ok();
    }

    fn timed<T>(&self, operation: &str, run: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = run();
        assert!(begin.elapsed() < NATIVE_DEADLINE, "{operation} took {} ms", begin.elapsed().as_millis());
        result
    }
}

/// Attacks while a native pod is in use; what exists on the node afterwards is what existed before.
fn next_to_a_native_pod(node: &Node, attack: impl FnOnce()) {
    let neighbor = Neighbor { node, has_ended: AtomicBool::new(false), rounds: AtomicU64::new(0) };
    let before = objects(node);
    thread::scope(|scope| {
        let user = scope.spawn(|| neighbor.run());
        wait_until("the native pod is in use", || neighbor.rounds.load(Ordering::SeqCst) > 1 || user.is_finished());
        // The scope waits for the user, also after a failure.
        let end = End(&neighbor.has_ended);
        attack();
        assert!(!user.is_finished(), "the native pod failed");
        drop(end);
    });
    println!("the native pod was used {} times", neighbor.rounds.load(Ordering::SeqCst));
    wait_until("nothing is left", || objects(node) == before);
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_guest_that_attacks_before_its_pod_is_ready_has_no_pod() {
    let (node, _images) = node();
    let begin = memory(&node);
    next_to_a_native_pod(&node, || {
        for (attack, error) in AT_BOOT {
            println!("{attack}");
            assert_error(&run_pod(&node, attack).1, error);
            wait_until("the virtual machine is gone", || objects(&node)["processes"].is_empty());
            let pods = node.crictl(&["pods", "-q"]).ok();
            assert_eq!(pods.lines().count(), 1, "{attack}: the pod is not listed");
            let growth = memory(&node).saturating_sub(begin);
            assert!(growth < MEMORY_MAX, "{attack}: the daemon has grown by {growth} KiB");
        }
    });
    node.end();
}

#[test]
fn a_guest_that_attacks_later_harms_only_its_pod() {
    let (node, _images) = node();
    let begin = memory(&node);
    next_to_a_native_pod(&node, || {
        for attack in LATER {
            println!("{attack}");
            let (pod, outcome) = run_pod(&node, attack);
            let pod_id = outcome.ok();
            let spec = ContainerSpec::new("app", IMAGE, &["sleep", "9999"]);
            let created = node.create_container(&pod_id, &pod, &spec);
            match attack {
                "wrong-creation" => assert_error(&created, "the agent in the guest answered something else"),
                "long-failure" => assert_error(&created, "in the guest: refused"),
                "early-exits" => exits_early(&node, &created.ok()),
                "console" => floods_console(&node, &pod_id, &created.ok()),
                _ => floods(&node, &created.ok(), begin),
            }
            let growth = memory(&node).saturating_sub(begin);
            assert!(growth < MEMORY_MAX, "{attack}: the daemon has grown by {growth} KiB");
            crictl(&node, &["stopp", &pod_id]).ok();
            assert!(objects(&node)["processes"].is_empty(), "{attack}: the virtual machine has ended");
            crictl(&node, &["rmp", &pod_id]).ok();
        }
    });
    node.end();
}

/// A guest may report any exit of its own containers: as one that is possible.
fn exits_early(node: &Node, id: &str) {
    crictl(node, &["start", id]);
    wait_until("the container has exited", || {
        node.crictl(&["inspect", id]).json()["status"]["state"] == "CONTAINER_EXITED"
    });
    let status = node.crictl(&["inspect", id]).json()["status"].clone();
    let code = status["exitCode"].as_i64().expect("a number");
    assert!((0..256).contains(&code), "{status}");
    let finished = status["finishedAt"].as_str().expect("a time");
    assert!(finished.starts_with("20") && finished >= status["createdAt"].as_str().expect("a time"), "{status}");
}

/// The console is bounded, and does not delay a request that the guest answers.
fn floods_console(node: &Node, pod_id: &str, id: &str) {
    crictl(node, &["start", id]).ok();
    let log = format!("/run/pinion/sandbox/{pod_id}/vm/hypervisor.log");
    let mut sizes = Vec::new();
    wait_until("the console was filled and replaced", || {
        sizes.push(node.run("stat", &["-c", "%s", &log]).stdout.trim().parse::<u64>().unwrap_or_default());
        assert!(sizes.iter().all(|size| *size <= CONSOLE_MAX), "{sizes:?}");
        sizes.windows(2).any(|pair| pair[1] < pair[0])
    });
}

/// Output without end fills the log of the container, and nothing else.
fn floods(node: &Node, id: &str, memory_at_first: u64) {
    crictl(node, &["start", id]).ok();
    let log = node.logs().join("flood/app.log");
    let size = || fs::metadata(&log).map_or(0, |file| file.len());
    wait_until("the guest floods the log", || size() > 1 << 20);
    crictl(node, &["exec", "-s", "--timeout", "5", id, "true"]).error();
    for _ in 0..20 {
        let growth = memory(node).saturating_sub(memory_at_first);
        assert!(growth < MEMORY_MAX, "the daemon has grown by {growth} KiB");
        thread::sleep(Duration::from_millis(100));
    }
    println!("    the log has {} bytes", size());
    crictl(node, &["stop", "-t", "1", id]).ok();
}
