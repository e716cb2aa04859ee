//! Kills a daemon at random moments and checks that its successor recovers.

mod node;

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    process::Stdio,
};

use node::{
    assert_clean, attach, attach_pod, config, files, on_a_node, open, outside, plugins::named_list, pod_ref, pod_with,
    request, request_from, serve, tcp,
};
use testbed::{shell, this_test};

/// Environment variable of the process that is killed: the number of its first pod.
const VICTIM: &str = "PINION_TEST_VICTIM";

/// Set for a process whose pods have several networks.
const NETWORKS: &str = "PINION_TEST_NETWORKS";

/// Attaches and detaches pods forever, until it is killed.
async fn live_as_victim(first: u32) {
    let network = open(config());
    let networks = std::env::var(NETWORKS).unwrap_or_default();
    println!("\nready");
    for number in first.. {
        let pod = pod_with(number, &networks);
        let pod = attach_pod(&network, number, &pod, &[tcp(8080, 80), tcp(8081, 81)]).await.unwrap();
        network.detach(&pod.id).await.unwrap();
    }
}

/// Kills victims of a test at random moments. Each time, another daemon removes what was left over.
async fn kill_victims(test: &str, networks: &str) {
    let mut leftovers = 0;
    for round in 0..40u32 {
        let mut victim = this_test(test)
            .env(VICTIM, (round * 1000 + 1).to_string())
            .env(NETWORKS, networks)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        // The time of the kill is what this test varies, so it is not synchronized with anything.
        let begin = std::time::Instant::now();
        while begin.elapsed() < std::time::Duration::from_micros(u64::from(round) * 331) {
            std::hint::spin_loop();
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        leftovers += files("attachments").len() + files("leases").len();
        let network = open(config());
        network.reconcile(&HashSet::new()).await.unwrap();
        assert_clean();
        let pod = pod_with(round * 1000 + 999, networks);
        let pod = attach_pod(&network, round * 1000 + 999, &pod, &[tcp(8080, 80), tcp(8081, 81)]).await.unwrap();
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_clean();
    }
    assert!(leftovers > 0, "no kill left anything behind: the test proved nothing");
}

/// Returns whether this process is a victim; then it never ends by itself.
fn is_victim() -> bool {
    let Ok(first) = std::env::var(VICTIM) else { return false };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(live_as_victim(first.parse().unwrap()));
    true
}

#[test]
fn killed_at_any_moment() {
    if !is_victim() {
        on_a_node(|| async { kill_victims("killed_at_any_moment", "").await });
    }
}

#[test]
fn killed_at_any_moment_with_several_networks() {
    if is_victim() {
        return;
    }
    on_a_node(|| async {
        let bridge = |name: &str, subnet: &str| {
            format!(
                r#"{{"type": "bridge", "bridge": "{name}", "ipam": {{"type": "host-local", "subnet": "{subnet}"}}}}"#
            )
        };
        // The first network by name has the ports.
        let portmap = r#"{"type": "portmap", "capabilities": {"portMappings": true}}"#;
        named_list("aa", "1.0.0", &format!("{}, {portmap}", bridge("br-a", "10.1.0.0/24")));
        named_list("bb", "1.0.0", &bridge("br-b", "10.2.0.0/24"));
        kill_victims("killed_at_any_moment_with_several_networks", "bb,bb,pinion").await;
    });
}

#[test]
fn only_objects_without_owner_are_removed() {
    on_a_node(|| async {
        let network = open(config());
        let (a, b) = (attach(&network, 1, &[tcp(8080, 80)]).await, attach(&network, 2, &[tcp(8081, 80)]).await);
        drop(network);
        // Foreign objects: a link on our bridge with another name, and a link with a name of ours on no bridge of ours.
        shell("ip link add theirs type veth peer name theirs1 && ip link set theirs master pinion0");
        shell("ip link add pin0123456789a type veth peer name y");
        // Leaked objects: a link, a lease without an owner, a lease of a dead owner, a damaged record, and a temporary
        // file.
        shell("ip link add pinfeedfeedfee type veth peer name x && ip link set pinfeedfeedfee master pinion0");
        shell("cd /run/pinion/network/leases/.built-in && touch 10.85.0.9 && printf 'gone\\r\\neth0' > 10.85.0.10");
        shell("cd /run/pinion/network/attachments && echo '{' > torn.json && echo x > .half.new");
        let network = open(config());
        let c = attach(&network, 3, &[]).await;
        network.reconcile(&HashSet::from([a.id.clone()])).await.unwrap();
        let links = shell("ip -o link");
        assert!(
            links.contains("theirs@") && links.contains("pin0123456789a") && !links.contains("pinfeedfeedfee"),
            "{links}"
        );
        let expected = [&a.id, &c.id].map(|id| format!("pin{}", &id[..11]));
        let on_bridge = shell("ip -o link show master pinion0");
        assert!(expected.iter().all(|name| on_bridge.contains(name)), "{on_bridge}");
        assert!(!on_bridge.contains(&format!("pin{}", &b.id[..11])), "{on_bridge}");
        assert_eq!(files("leases").len(), 2, "{:?}", files("leases"));
        let ports = node::ports();
        assert!(ports.contains("8080") && !ports.contains("8081"), "{ports}");
        assert!(!files("attachments").iter().any(|name| name.contains("torn") || name.contains("half")));
        assert!(network.detach(&pod_ref(2).sandbox).await.is_ok());
    });
}

#[test]
fn pods_keep_their_network_after_a_restart() {
    on_a_node(|| async {
        let (network, outside) = (open(config()), outside());
        let pod = attach(&network, 1, &[tcp(8080, 80)]).await;
        drop(network);
        let network = open(config());
        network.reconcile(&HashSet::from([pod.id.clone()])).await.unwrap();
        serve(&pod.ns, "0.0.0.0:80");
        assert!(request("127.0.0.1:8080").is_ok());
        serve(&outside, "0.0.0.0:80");
        // The outside has no route to pods: it answers only if the packets are masqueraded.
        assert_eq!(request_from(&pod.ns, "192.0.2.2:80").unwrap(), "192.0.2.1");
    });
}

#[test]
fn many_pods_are_attached_and_detached_concurrently() {
    on_a_node(|| async {
        let network = open(config());
        let tasks: Vec<_> = (1..=64u16)
            .map(|number| {
                let network = network.clone();
                tokio::spawn(async move { attach(&network, number.into(), &[tcp(8000 + number, 80)]).await })
            })
            .collect();
        let mut pods = Vec::new();
        for task in tasks {
            pods.push(task.await.unwrap());
        }
        assert_eq!(pods.iter().map(node::Pod::ip).collect::<HashSet<_>>().len(), 64);
        let tasks: Vec<_> = pods
            .iter()
            .map(|pod| {
                let (network, id) = (network.clone(), pod.id.clone());
                tokio::spawn(async move { network.detach(&id).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        network.settle().await;
        assert_clean();
    });
}
