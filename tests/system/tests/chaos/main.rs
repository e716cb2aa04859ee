//! Daemon, monitor and plugins are killed, fail and sleep at random times while clients run pods: nothing is lost,
//! nothing is leaked, no request hangs.
//!
//! `CHAOS_SEED` selects other random times, `CHAOS_SECONDS` a longer run.

mod client;
mod random;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use client::{Client, Statistics};
use cri_proto::v1::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use random::Random;
use system_tests::{Node, Options, Registry, wait_until};
use testbed::make_image_with;

const CLIENTS: u64 = 4;
const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "flaky", "plugins": [{"type": "flaky"}]}"#;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns a node with the built-in network, or with a plugin that fails and sleeps at random and records the attached
/// pods.
fn node(flaky: bool) -> Node {
    let cni = if flaky { vec![("10-flaky.conflist".to_owned(), LIST.to_owned())] } else { Vec::new() };
    let node = Node::new(Options { cni, ..Options::default() });
    let dir = node.dir.path();
    let config = fs::read_to_string(node.config()).expect("configuration");
    fs::write(node.config(), format!("{config}network.cni_bin_dirs = [\"{}/bin\"]\n", dir.display())).expect("write");
    let script = format!(
        "#!/bin/sh\ncat > /dev/null\n\
         chance=$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')\n\
         case $CNI_COMMAND in\n\
         ADD) touch {dir}/attached/$CNI_CONTAINERID\n\
           [ $chance -lt 30 ] && sleep 0.$chance\n\
           [ $chance -lt 8 ] && sleep 40\n\
           [ $chance -gt 230 ] && {{ echo '{{\"code\":100,\"msg\":\"flaky at random\"}}'; exit 1; }}\n\
           echo '{{\"cniVersion\":\"1.0.0\",\"ips\":[{{\"address\":\"10.9.0.7/24\"}}]}}';;\n\
         DEL) [ $chance -gt 240 ] && {{ echo '{{\"code\":100,\"msg\":\"flaky at random\"}}'; exit 1; }}\n\
           rm -f {dir}/attached/$CNI_CONTAINERID;;\nesac\nexit 0\n",
        dir = dir.display()
    );
    for directory in ["bin", "attached"] {
        fs::create_dir(dir.join(directory)).expect("directory");
    }
    fs::write(dir.join("bin/flaky"), script).expect("plugin");
    fs::set_permissions(dir.join("bin/flaky"), fs::Permissions::from_mode(0o755)).expect("plugin");
    node
}

/// Pushes another image, which no container uses, to the registry. It is pulled and removed by a client.
fn push_other_image(node: &Node, registry: &mut Registry) {
    let dir = node.dir.path().join("other");
    make_image_with(&dir, client::PULLED, &[("PAGE", "another")]);
    registry.layout = dir.join("layout");
    registry.push(node, "other", "1");
}

/// Kills the programs with this name. A child that the monitor cloned and that has not executed its program yet has the
/// same name, but it is a process of a container and has no signalfd.
fn kill(node: &Node, name: &str) {
    for process in node.processes() {
        if process.name == name && process.state != 'Z' && (name != "pinmon" || process.has_signalfd()) {
            // The process may have exited by itself.
            let _ = node.run("kill", &["-KILL", &process.pid.to_string()]);
        }
    }
}

/// Kills programs at random until the deadline. A daemon is running when it returns. Returns the number of kills.
fn kill_at_random(node: &mut Node, random: &mut Random, deadline: Instant) -> u64 {
    let mut kills = 0;
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(random.below(700)));
        let (daemon, monitor) = [(true, false), (false, true), (true, true)][random.below(3) as usize];
        if monitor {
            kill(node, "pinmon");
        } else if random.one_in(2) {
            kill(node, "pinmon-log");
        }
        if daemon {
            kill(node, "pinion");
            node.reap_daemon();
            // Sometimes no daemon is running for a while.
            thread::sleep(Duration::from_millis(random.below(2) * random.below(300)));
            node.start_daemon();
        } else if random.one_in(3) {
            // The test takes the role of an operator who kills a hung plugin. Plugins that are not killed exit later.
            kill(node, "flaky");
        }
        kills += 1;
    }
    kills
}

/// Returns all objects on the node that a pod could leak.
fn objects(node: &Node) -> BTreeSet<String> {
    let mut objects: BTreeSet<String> =
        node.mountinfo().iter().filter_map(|line| line.split(' ').nth(4)).map(|path| format!("mount {path}")).collect();
    let list = |kind: &str, command: &str| {
        let output = node.run("sh", &["-c", command]).stdout;
        output.lines().map(|line| format!("{kind} {line}")).collect::<Vec<_>>()
    };
    objects.extend(list("file", "find /run -xdev; find /run/pinion"));
    objects.extend(list("link", "ip -o link | cut -d: -f2"));
    objects.extend(list("nft", "nft list ruleset | grep -c ' : '"));
    objects.extend(list("route", "ip route | cut -d' ' -f1-3"));
    let dir = node.dir.path();
    objects.extend(list("data", &format!("find {}/data -maxdepth 2 | grep -v /blobs", dir.display())));
    objects.extend(list("attached", &format!("ls {}/attached", dir.display())));
    objects
}

fn descriptors(node: &Node, name: &str) -> usize {
    let directory = node.process(name).directory.join("fd");
    fs::read_dir(directory).expect("descriptors").count()
}

/// Checks that no pods, containers, processes or other objects are left.
fn check_no_leaks(node: &Node, flaky: bool, before: &BTreeSet<String>) {
    if flaky {
        // A pod whose ADD failed exists until its DEL succeeds, which the reconciler retries with increasing delays.
        let attached = node.dir.path().join("attached");
        let start = Instant::now();
        let is_left = || {
            attached.read_dir().expect("directory").next().is_some() || !node.crictl(&["pods", "-q"]).ok().is_empty()
        };
        while is_left() && start.elapsed() < Duration::from_secs(150) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    assert_eq!(node.crictl(&["pods"]).ok().lines().count(), 1, "leaked pods: {}", node.crictl(&["pods"]).ok());
    assert_eq!(node.crictl(&["ps", "-aq"]).ok(), "", "leaked containers");
    wait_until("only the daemon and the monitor are running", || {
        let expected = ["pinion", "pinmon-log", "docker-registry"];
        node.processes()
            .iter()
            .all(|process| process.state == 'Z' || expected.iter().any(|name| name.starts_with(&process.name)))
    });
    let mut leaked: Vec<String> = Vec::new();
    // Namespaces of the pool, and the parent cgroup of all pods, are created and removed at any time.
    for _ in 0..200 {
        leaked = objects(node).difference(before).filter(|object| !is_permanent(object)).cloned().collect();
        if leaked.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(leaked.is_empty(), "leaked: {leaked:#?}");
}

/// Whether the object belongs to the daemon itself.
fn is_permanent(object: &str) -> bool {
    ["file /run/pinion/journal", "file /run/pinion/boot_id"].iter().any(|prefix| object.starts_with(prefix))
}

#[tokio::test(flavor = "multi_thread")]
async fn random_kills_lose_and_leak_nothing() {
    let (first, seconds) = (number("CHAOS_SEED", 1), number("CHAOS_SECONDS", 10));
    for seed in first..first + number("CHAOS_ROUNDS", 2) {
        round(seed, Duration::from_secs(seconds)).await;
    }
}

async fn round(seed: u64, time: Duration) {
    let flaky = seed.is_multiple_of(2);
    let mut node = node(flaky);
    node.start_daemon();
    node.load_image();
    let mut registry = Registry::start(&node);
    push_other_image(&node, &mut registry);
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.init_pid());
    let channel = cri_proto::connect(&socket).await.expect("connect to the daemon");
    let statistics = Mutex::new(Statistics::default());
    let client = |number: u64| Client {
        runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(cri_proto::MESSAGE_MAX),
        images: ImageServiceClient::new(channel.clone()),
        random: Random::new(seed * 1000 + number),
        logs: node.logs(),
        statistics: &statistics,
    };
    // The first pod creates objects that the node keeps.
    if !flaky {
        client(99).run_pod("first").await;
    }
    client(99).pull_and_remove().await;
    let before = objects(&node);
    let done = AtomicBool::new(false);
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut puller = client(98);
    let kills = thread::scope(|scope| {
        let done = &done;
        let runtime = tokio::runtime::Handle::current();
        for (number, client) in clients.iter_mut().enumerate() {
            let runtime = runtime.clone();
            scope.spawn(move || {
                for pod in 0.. {
                    runtime.block_on(client.run_pod(&format!("pod-{number}-{pod}")));
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let images = runtime.clone();
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                images.block_on(puller.pull_and_remove());
            }
        });
        let node = &mut node;
        let kills = scope.spawn(move || kill_at_random(node, &mut Random::new(seed), Instant::now() + time)).join();
        done.store(true, Ordering::Relaxed);
        kills.expect("the daemon is running")
    });
    drop(clients);
    let statistics = statistics.into_inner().expect("no panic");
    println!("seed {seed}, {} s: {kills} kills; {statistics:#?}", time.as_secs());
    assert_eq!(statistics.faults, Vec::<String>::new(), "seed {seed}");
    check_no_leaks(&node, flaky, &before);
    let (daemon, monitor) = (descriptors(&node, "pinion"), descriptors(&node, "pinmon"));
    node.kill_daemon();
    node.start_daemon();
    node.kill_monitor();
    println!(
        "descriptors: {daemon} and {monitor}; after restarts: {} and {}",
        descriptors(&node, "pinion"),
        descriptors(&node, "pinmon")
    );
    node.end();
}
