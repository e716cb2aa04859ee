//! The budgets of SPECIFICATION.md for the programs of a node: sizes, memory, descriptors and threads. All of them are
//! counted, so that they hold on any machine. `--nocapture` prints what was measured.

use std::{fmt, fs, path::Path, thread, time::Duration};

use system_tests::{ContainerSpec, Node, PodSpec, wait_until};
use testbed::{Memory, descriptors, program, threads};

/// Pods at which a node is measured first, so that what is allocated once does not count for each.
const FEW: usize = 5;
/// Pods that are added then.
const ADDED: usize = 40;

/// Bytes of the static programs, which every build optimizes for size.
const PINMON_MAX: u64 = 3_300_000;
const PINRUN_MAX: u64 = 3_000_000;
const PINION_CNI_MAX: u64 = 2_200_000;
/// Bytes of the daemon in a build for development (`scripts/build dev`), with line tables, and in a release.
const PINION_DEV_MAX: u64 = 185_000_000;
const PINION_RELEASE_MAX: u64 = 47_000_000;

/// What the daemon and the monitor of a node without pods may use.
const DAEMON_AT_REST: Usage = Usage { descriptors: 66, threads: 18, resident: 72_000, anonymous: 4_900 };
const MONITOR_AT_REST: Usage = Usage { descriptors: 22, threads: 1, resident: 2_900, anonymous: 100 };

/// What each pod with a container may add. Memory is in KiB, without resident pages of the program.
const DAEMON_PER_POD: Usage = Usage { descriptors: 9, threads: 0, resident: 30, anonymous: 30 };
const MONITOR_PER_POD: Usage = Usage { descriptors: 9, threads: 0, resident: 7, anonymous: 7 };
const WRITER_PER_POD: Usage = Usage { descriptors: 3, threads: 0, resident: 1, anonymous: 1 };

/// What a process uses. Memory is in KiB.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Usage {
    descriptors: usize,
    threads: usize,
    resident: u64,
    anonymous: u64,
}

impl Usage {
    fn of(node: &Node, name: &str) -> Self {
        let process = node.process(name);
        let Memory { resident, anonymous, .. } = process.memory().expect("the process is running");
        let directory = &process.directory;
        Self { descriptors: descriptors(directory), threads: threads(directory), resident, anonymous }
    }

    /// Returns the usage of a daemon without its workers, of which there is one for each CPU, at most 8.
    fn of_daemon(node: &Node) -> Self {
        let usage = Self::of(node, "pinion");
        let workers = thread::available_parallelism().map_or(2, Into::into).min(8);
        Self { threads: usage.threads - workers, ..usage }
    }

    /// Returns the usage without resident pages of the program: pods do not add any, and which of them were read differs
    /// from run to run by more than all pods add.
    fn without_program(node: &Node, name: &str) -> Self {
        let Memory { resident, file, .. } = node.process(name).memory().expect("the process is running");
        Self { resident: resident.saturating_sub(file), ..Self::of(node, name) }
    }

    /// Waits until the counts of a process have not changed for some time: namespaces are made in advance, and threads
    /// for short requests end, in the background.
    fn settled(node: &Node, usage: fn(&Node) -> Self) -> Self {
        let mut last = usage(node);
        wait_until("the descriptors and threads of a process do not change", || {
            thread::sleep(Duration::from_secs(1));
            let now = usage(node);
            let is_settled = (now.descriptors, now.threads) == (last.descriptors, last.threads);
            last = now;
            is_settled
        });
        last
    }

    /// Like [`Self::settled`], but gives threads beyond the budget, which short requests left behind, the time after which
    /// the async runtime ends idle ones.
    fn at_rest(node: &Node, usage: fn(&Node) -> Self, max: Self) -> Self {
        const KEEP_ALIVE: Duration = Duration::from_secs(11);
        let settled = Self::settled(node, usage);
        if settled.threads <= max.threads {
            return settled;
        }
        thread::sleep(KEEP_ALIVE);
        Self::settled(node, usage)
    }

    #[track_caller]
    fn assert_at_most(self, max: Self, what: &str) {
        println!("{what}: {self}; at most {max}");
        let is_within = self.descriptors <= max.descriptors
            && self.threads <= max.threads
            && self.resident <= max.resident
            && self.anonymous <= max.anonymous;
        assert!(is_within, "{what} uses {self}; at most {max} (SPECIFICATION.md)");
    }

    /// Asserts that what `ADDED` pods added is within their budget. Threads may end, but none may be added for a pod.
    #[track_caller]
    fn assert_growth(self, few: Self, max: Self, what: &str) {
        let (pods, kib) = (ADDED, ADDED as u64);
        let added = Self {
            descriptors: self.descriptors - few.descriptors,
            threads: self.threads.saturating_sub(few.threads) / pods,
            resident: self.resident.saturating_sub(few.resident),
            anonymous: self.anonymous.saturating_sub(few.anonymous),
        };
        let max = Self {
            descriptors: max.descriptors * pods,
            threads: max.threads,
            resident: max.resident * kib,
            anonymous: max.anonymous * kib,
        };
        added.assert_at_most(max, &format!("{what} for {pods} more pods"));
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, threads, resident, anonymous } = self;
        write!(f, "{descriptors} descriptors, {threads} threads, {resident} KiB resident, {anonymous} KiB anonymous")
    }
}

#[test]
fn programs_are_small() {
    let size = |name: &str| fs::metadata(program(name)).expect("a program").len();
    let max = if has_debug_assertions(&program("pinion")) { PINION_DEV_MAX } else { PINION_RELEASE_MAX };
    for (name, max) in [("pinion", max), ("pinmon", PINMON_MAX), ("pinrun", PINRUN_MAX), ("pinion-cni", PINION_CNI_MAX)]
    {
        println!("{name}: {} bytes; at most {max}", size(name));
        assert!(size(name) <= max, "{name} has {} bytes; at most {max} (SPECIFICATION.md)", size(name));
    }
}

/// Whether a program was built for development, with the standard library's checks of the preconditions of unsafe functions.
fn has_debug_assertions(program: &Path) -> bool {
    let message = b"unsafe precondition(s) violated";
    let bytes = fs::read(program).expect("read a program");
    bytes.windows(message.len()).any(|window| window == message)
}

#[test]
fn a_node_without_pods_uses_little() {
    let node = Node::start();
    Usage::at_rest(&node, Usage::of_daemon, DAEMON_AT_REST).assert_at_most(DAEMON_AT_REST, "the daemon");
    Usage::settled(&node, monitor).assert_at_most(MONITOR_AT_REST, "the monitor");
    node.end();
}

#[test]
fn each_pod_adds_little() {
    let mut node = Node::start();
    node.load_image();
    let programs: [fn(&Node) -> Usage; 3] = [
        |node| Usage { threads: Usage::of_daemon(node).threads, ..Usage::without_program(node, "pinion") },
        |node| Usage::without_program(node, "pinmon"),
        |node| Usage::without_program(node, "pinmon-log"),
    ];
    run_pods(&node, 0..FEW);
    restart_daemon(&mut node);
    let few = programs.map(|usage| Usage::settled(&node, usage));
    run_pods(&node, FEW..FEW + ADDED);
    restart_daemon(&mut node);
    let names = ["the daemon", "the monitor", "the log writer"];
    let budgets = [DAEMON_PER_POD, MONITOR_PER_POD, WRITER_PER_POD];
    for (n, name) in names.into_iter().enumerate() {
        Usage::settled(&node, programs[n]).assert_growth(few[n], budgets[n], name);
    }
    node.remove_all_pods();
    node.end();
}

fn monitor(node: &Node) -> Usage {
    Usage::of(node, "pinmon")
}

/// Restarts the daemon, so that its heap has the records of pods and nothing that requests left in it.
fn restart_daemon(node: &mut Node) {
    node.stop_daemon();
    node.start_daemon();
}

/// Runs pods with one container each.
fn run_pods(node: &Node, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let pod = PodSpec::named(node, &format!("pod{number}"));
        let id = node.run_pod(&pod);
        node.run_container(&id, &pod, &ContainerSpec::new("sleeper", "demo:1", &["sleep", "100000"]));
    }
}
