//! Daemon, monitor and plugins die, fail and sleep at moments by chance under clients that lead whole lives of pods:
//! nothing is lost, nothing stays, nobody waits for ever.
//!
//! `CHAOS_SEED` and `CHAOS_SECONDS` for other moments, and for longer.

mod chance;
mod life;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use chance::Chance;
use cri_proto::v1::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use life::{Client, Met};
use system_tests::{Node, Options, Registry, wait_until};

const CLIENTS: u64 = 4;
const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "flaky", "plugins": [{"type": "flaky"}]}"#;

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A node with the built-in network, or with a plugin that fails and sleeps by chance and notes who is attached.
fn node(flaky: bool) -> Node {
    let cni = if flaky { vec![("10-flaky.conflist".to_owned(), LIST.to_owned())] } else { Vec::new() };
    let node = Node::cold(Options { cni, ..Options::default() });
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
           [ $chance -gt 230 ] && {{ echo '{{\"code\":100,\"msg\":\"flaky by chance\"}}'; exit 1; }}\n\
           echo '{{\"cniVersion\":\"1.0.0\",\"ips\":[{{\"address\":\"10.9.0.7/24\"}}]}}';;\n\
         DEL) [ $chance -gt 240 ] && {{ echo '{{\"code\":100,\"msg\":\"flaky by chance\"}}'; exit 1; }}\n\
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

/// One that nobody uses: to be pulled and removed.
fn another_image(node: &Node, registry: &mut Registry) {
    let (script, dir) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make-image"), node.dir.path().join("other"));
    let made = Command::new(script).arg(&dir).arg(life::PULLED).env("PAGE", "another").output().expect("make-image");
    assert!(made.status.success(), "{made:?}");
    registry.layout = dir.join("layout");
    registry.push(node, "other", "1");
}

/// Kills what serves by this name. What the monitor cloned and did not come to its program yet has its name, too: that
/// is a container's process, and holds no signals.
fn kill(node: &Node, name: &str) {
    for process in node.processes() {
        if process.name == name && process.state != 'Z' && (name != "pinmon" || process.takes_signals()) {
            // It may have ended by itself.
            let _ = node.run("kill", &["-KILL", &process.pid.to_string()]);
        }
    }
}

/// Kills until it is time; leaves a daemon that answers.
fn rage(node: &mut Node, chance: &mut Chance, until: Instant) -> u64 {
    let mut deaths = 0;
    while Instant::now() < until {
        thread::sleep(Duration::from_millis(chance.below(700)));
        let (daemon, monitor) = [(true, false), (false, true), (true, true)][chance.below(3) as usize];
        if monitor {
            kill(node, "pinmon");
        } else if chance.one_in(2) {
            kill(node, "pinmon-log");
        }
        if daemon {
            kill(node, "pinion");
            node.forget_daemon();
            // Now and then nobody is there for a while, or a second death comes at the start.
            thread::sleep(Duration::from_millis(chance.below(2) * chance.below(300)));
            node.start_daemon();
        } else if chance.one_in(3) {
            // A plugin that hangs is somebody's to end, here an operator's; who rages no more leaves it to its own
            // time.
            kill(node, "flaky");
        }
        deaths += 1;
    }
    deaths
}

/// Everything there is on the node that a pod may leave.
fn things(node: &Node) -> BTreeSet<String> {
    let mut things: BTreeSet<String> =
        node.mountinfo().iter().filter_map(|line| line.split(' ').nth(4)).map(|at| format!("mount {at}")).collect();
    let listed = |what: &str, command: &str| {
        let out = node.run("sh", &["-c", command]).stdout;
        out.lines().map(|line| format!("{what} {line}")).collect::<Vec<_>>()
    };
    things.extend(listed("file", "find /run -xdev; find /run/pinion"));
    things.extend(listed("link", "ip -o link | cut -d: -f2"));
    things.extend(listed("nft", "nft list ruleset | grep -c ' : '"));
    things.extend(listed("route", "ip route | cut -d' ' -f1-3"));
    let dir = node.dir.path();
    things.extend(listed("data", &format!("find {}/data -maxdepth 2 | grep -v /blobs", dir.display())));
    things.extend(listed("attached", &format!("ls {}/attached", dir.display())));
    things
}

fn descriptors(node: &Node, name: &str) -> usize {
    let directory = node.process(name).directory.join("fd");
    fs::read_dir(directory).expect("descriptors").count()
}

fn calm(node: &Node, flaky: bool, before: &BTreeSet<String>) {
    if flaky {
        // A pod whose ADD failed is there until its DEL succeeds, which the reconciler retries with growing pauses.
        let attached = node.dir.path().join("attached");
        let begin = Instant::now();
        let left = || {
            attached.read_dir().expect("directory").next().is_some() || !node.crictl(&["pods", "-q"]).ok().is_empty()
        };
        while left() && begin.elapsed() < Duration::from_secs(150) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    assert_eq!(node.crictl(&["pods"]).ok().lines().count(), 1, "pods are left: {}", node.crictl(&["pods"]).ok());
    assert_eq!(node.crictl(&["ps", "-aq"]).ok(), "", "containers are left");
    wait_until("only daemon and monitor live", || {
        let ours = ["pinion", "pinmon-log", "docker-registry"];
        node.processes()
            .iter()
            .all(|process| process.state == 'Z' || ours.iter().any(|name| name.starts_with(&process.name)))
    });
    let mut left: Vec<String> = Vec::new();
    // Namespaces of the pool, and the group above all pods, come and go.
    for _ in 0..200 {
        left = things(node).difference(before).filter(|thing| !expected(thing)).cloned().collect();
        if left.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(left.is_empty(), "left: {left:#?}");
}

/// What a daemon keeps however many pods there were.
fn expected(thing: &str) -> bool {
    ["file /run/pinion/journal", "file /run/pinion/boot_id"].iter().any(|known| thing.starts_with(known))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_dies_nothing_is_lost_and_nothing_stays() {
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
    another_image(&node, &mut registry);
    let socket = format!("/proc/{}/root/run/pinion/pinion.sock", node.first());
    let channel = cri_proto::connect(&socket).await.expect("the daemon answers");
    let met = Mutex::new(Met::default());
    let client = |number: u64| Client {
        runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(cri_proto::MESSAGE_MAX),
        images: ImageServiceClient::new(channel.clone()),
        chance: Chance::of_seed(seed * 1000 + number),
        logs: node.logs(),
        met: &met,
    };
    // What a node makes once is there from now on.
    if !flaky {
        client(99).life("first").await;
    }
    client(99).image().await;
    let before = things(&node);
    let over = AtomicBool::new(false);
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut puller = client(98);
    let deaths = thread::scope(|scope| {
        let over = &over;
        let runtime = tokio::runtime::Handle::current();
        for (number, client) in clients.iter_mut().enumerate() {
            let runtime = runtime.clone();
            scope.spawn(move || {
                for life in 0.. {
                    runtime.block_on(client.life(&format!("pod-{number}-{life}")));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let images = runtime.clone();
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                images.block_on(puller.image());
            }
        });
        let node = &mut node;
        let deaths = scope.spawn(move || rage(node, &mut Chance::of_seed(seed), Instant::now() + time)).join();
        over.store(true, Ordering::Relaxed);
        deaths.expect("the daemon comes back")
    });
    drop(clients);
    let met = met.into_inner().expect("no panic");
    println!("seed {seed}, {} s: {deaths} deaths; {met:#?}", time.as_secs());
    assert_eq!(met.faults, Vec::<String>::new(), "seed {seed}");
    calm(&node, flaky, &before);
    let (daemon, monitor) = (descriptors(&node, "pinion"), descriptors(&node, "pinmon"));
    node.kill_daemon();
    node.start_daemon();
    node.kill_monitor();
    println!(
        "descriptors: {daemon} and {monitor}; new ones: {} and {}",
        descriptors(&node, "pinion"),
        descriptors(&node, "pinmon")
    );
    node.end();
}
