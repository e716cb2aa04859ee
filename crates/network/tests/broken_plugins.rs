//! Pods of a network with a plugin that hangs, prints garbage, dies or fails, and reboots that lose what is in memory: no
//! address, link, rule, record or process of a pod is left. `CYCLES=10000` is the long form (`make campaign`).

mod node;

use std::{
    collections::HashSet,
    fs,
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use network::Network;
use node::{assert_clean, attach, config, files, on_a_node, pod_ref, tcp, try_attach};
use testbed::shell;

/// Pods of the short form.
const SHORT: u32 = 144;
/// Pods that are attached and detached at the same time.
const AT_ONCE: u32 = 48;
/// Longest time of a plugin call.
const LIMIT: Duration = Duration::from_millis(500);
/// How often a pod's detachment is repeated, as the kubelet does it.
const TRIES: u32 = 6;
/// How often a node is rebooted: after this number of batches.
const REBOOT: u32 = 2;

/// What the plugin does to a pod, by the pod's number.
const MODES: [&str; 12] = [
    "fine",
    "add-hangs",
    "add-prints-garbage",
    "add-dies",
    "add-fails",
    "add-prints-too-much",
    "add-leaves-a-process",
    "del-fails",
    "del-hangs",
    "del-dies",
    "del-prints-garbage",
    "add-has-no-result",
];

/// The plugin is between types that run in the daemon's process. `del-…` happens once for each pod.
fn install() {
    fs::create_dir_all("/run/bin").unwrap();
    fs::create_dir_all("/run/modes").unwrap();
    let orphan = orphan();
    let script = format!(
        r#"#!/bin/sh
mode=$(cat /run/modes/$CNI_CONTAINERID)
result() {{ sed 's/.*"prevResult":\({{.*}}\),"type".*/\1/'; }}
once() {{ mkdir /run/modes/$CNI_CONTAINERID.once 2>/dev/null; }}
case $CNI_COMMAND-$mode in
ADD-add-hangs) exec {orphan} ;;
ADD-add-prints-garbage) printf '{{"cniVersion": [[[\0' ;;
ADD-add-dies) kill -9 $$ ;;
ADD-add-fails) echo '{{"cniVersion": "1.0.0", "code": 999, "msg": "not today"}}'; exit 1 ;;
ADD-add-prints-too-much) exec head -c 20000000 /dev/zero ;;
ADD-add-leaves-a-process) setsid {orphan} & kill -9 $$ ;;
ADD-add-has-no-result) ;;
DEL-del-fails) once && {{ echo '{{"cniVersion": "1.0.0", "code": 11, "msg": "later"}}'; exit 1; }} ;;
DEL-del-hangs) once && exec {orphan} ;;
DEL-del-dies) once && kill -9 $$ ;;
DEL-del-prints-garbage) head -c 1000 /dev/urandom ;;
ADD-*) result ;;
esac
exit 0
"#
    );
    fs::write("/run/bin/broken", script).unwrap();
    shell("chmod 755 /run/bin/broken");
    fs::create_dir_all("/run/net.d").unwrap();
    fs::write(
        "/run/net.d/10.conflist",
        r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [
        {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "/run/leases", "ranges":
        [[{"subnet": "10.5.0.0/26"}], [{"subnet": "fd05::/64"}]]}},
        {"type": "broken"},
        {"type": "portmap", "capabilities": {"portMappings": true}}]}"#,
    )
    .unwrap();
}

/// A process that only the plugin of this run starts.
fn orphan() -> String {
    format!("sleep 4{:07}", std::process::id())
}

fn open() -> Network {
    Network::open_with_limit(config(), LIMIT).expect("the network opens")
}

/// The life of one pod. Returns whether it was attached.
async fn cycle(network: &Network, number: u32) -> bool {
    let (pod, mode) = (pod_ref(number), MODES[number as usize % MODES.len()]);
    fs::write(format!("/run/modes/{}", pod.sandbox), mode).unwrap();
    let port = 10_000 + u16::try_from(number % 20_000).unwrap();
    let attached = try_attach(network, number, &[tcp(port, 80)]).await;
    let is_attached = attached.is_ok();
    assert_eq!(is_attached, !mode.starts_with("add-"), "pod {number}, {mode}: {:?}", attached.err());
    for failures in 0.. {
        match network.detach(&pod.sandbox).await {
            Ok(()) => break,
            Err(error) => assert!(failures < TRIES && mode.starts_with("del-"), "pod {number}, {mode}: {error}"),
        }
    }
    shell(&format!("ip netns del pod-{number}; rm -rf /run/modes/{}*", pod.sandbox));
    is_attached
}

fn leases() -> String {
    shell("ls /run/leases/test | grep -E \"^[0-9a-f]+[.:]\" || true")
}

fn assert_nothing_left() {
    assert_clean();
    assert_eq!(leases(), "");
    let left = shell("ip -o link; nft list ruleset; ls /run/netns");
    assert!(!left.contains("veth") && !left.contains("10.5.0.") && !left.contains("pod-"), "{left}");
    assert_eq!(files("attachments"), Vec::<String>::new());
    testbed::wait_until("every process of the plugin is killed", Duration::from_secs(10), || {
        shell(&format!("pgrep -f '^{}$' || true", orphan())).is_empty()
    });
}

/// The node loses its links, its rules and what is on tmpfs, but not the leases. Two pods are attached at that time.
async fn reboot(network: Network, number: &AtomicU32) -> Network {
    for _ in 0..2 {
        let number = number.fetch_add(1, Ordering::Relaxed);
        fs::write(format!("/run/modes/{}", pod_ref(number).sandbox), "fine").unwrap();
        let pod = attach(&network, number, &[]).await;
        assert!(matches!(pod.ip(), IpAddr::V4(_)));
        drop(pod);
        shell(&format!("ip netns del pod-{number}"));
    }
    drop(network);
    shell(
        "nft flush ruleset; rm -rf /run/pinion /run/modes/*; echo another > /run/leases/test/last_reserved_ip.boot_id
        find /run/leases/test -type f -exec touch -d '2000-01-01' {} +",
    );
    testbed::wait_until("the links are gone with their namespaces", Duration::from_secs(10), || {
        !shell("ip -o link").contains("veth")
    });
    let network = open();
    // The next pod of the network frees what is left of the other boot.
    assert!(cycle(&network, MODES.len() as u32 * number.fetch_add(1, Ordering::Relaxed)).await);
    network
}

#[test]
fn nothing_is_left_of_pods_whose_plugin_is_broken() {
    on_a_node(|| async {
        install();
        let cycles: u32 = std::env::var("CYCLES").map_or(SHORT, |text| text.parse().expect("a number"));
        let (mut network, number, begin) = (open(), AtomicU32::new(0), Instant::now());
        let (mut attached, mut batches) = (0, 0);
        while number.load(Ordering::Relaxed) < cycles {
            let first = number.fetch_add(AT_ONCE, Ordering::Relaxed);
            let pods = (first..first + AT_ONCE).map(|number| cycle(&network, number));
            attached += join_all(pods).await.into_iter().filter(|attached| *attached).count();
            network.settle().await;
            assert_nothing_left();
            batches += 1;
            if batches % REBOOT == 0 {
                network = reboot(network, &number).await;
                network.settle().await;
                network.reconcile(&HashSet::new()).await.expect("the network is reconciled");
                assert!(!network.is_unfinished());
                assert_nothing_left();
            }
        }
        assert!(attached > 0);
        println!("{} pods, {attached} of them attached, in {:?}", number.load(Ordering::Relaxed), begin.elapsed());
    });
}
