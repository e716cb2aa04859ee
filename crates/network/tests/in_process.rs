//! Types of the reference plugins that run in the daemon's process: no program is in the plugin directory.

mod node;

use std::{collections::HashSet, fs, net::IpAddr};

use network::{NetworkSelection, PodRef};
use node::{
    assert_clean, attach, attach_pod, config, files, ns_path, on_a_node, open, outside, pod_ref, request, request_from,
    serve, tcp, try_attach,
};
use testbed::shell;

fn list(plugins: &str) {
    let text = format!(r#"{{"cniVersion": "1.1.0", "name": "test", "plugins": [{plugins}]}}"#);
    fs::create_dir_all("/run/net.d").unwrap();
    fs::write("/run/net.d/10.conflist", text).unwrap();
}

const ADDRESSES: &str = r#""ipam": {"type": "host-local", "dataDir": "/run/leases", "ranges": [[{"subnet": "10.5.0.0/24"}],
    [{"subnet": "fd05::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]}"#;
const PORTMAP: &str = r#"{"type": "portmap", "capabilities": {"portMappings": true}}"#;

fn leases() -> String {
    shell("ls /run/leases/test | grep -E \"^[0-9a-f]+[.:]\" || true")
}

#[test]
fn a_routed_pod_with_ports_and_limits_needs_no_program() {
    on_a_node(|| async {
        list(&format!(
            r#"{{"type": "ptp", "ipMasq": true, {ADDRESSES}}}, {{"type": "bandwidth", "ingressRate": 80000000,
            "ingressBurst": 8000000, "egressRate": 80000000, "egressBurst": 8000000}},
            {{"type": "tuning", "dataDir": "/run/tuning", "sysctl": {{"net.core.somaxconn": "77"}}, "mtu": 1300}}, {PORTMAP}"#
        ));
        let (network, outside) = (open(config()), outside());
        network.ready().unwrap();
        let pod = attach(&network, 1, &[tcp(8080, 80)]).await;
        assert_eq!((pod.ip().to_string().as_str(), leases().lines().count()), ("10.5.0.2", 2));
        serve(&pod.ns, "0.0.0.0:80");
        // From the node, from its loopback address, and from another machine, which the pod sees as it is.
        assert_eq!(request("10.5.0.2:80").unwrap(), "10.5.0.1");
        assert!(request("127.0.0.1:8080").is_ok());
        assert_eq!(request_from(&outside, "192.0.2.1:8080").unwrap(), "192.0.2.2");
        // The other machine has no route to pods: it sees the node.
        serve(&outside, "192.0.2.2:81");
        assert_eq!(request_from(&pod.ns, "192.0.2.2:81").unwrap(), "192.0.2.1");
        let inside = shell(
            "ip netns exec pod-1 sh -c \"cat /proc/sys/net/core/somaxconn /sys/class/net/eth0/mtu; ip link show eth0\"",
        );
        assert!(inside.starts_with("77\n") && inside.contains("mtu 1300"), "{inside}");
        assert_eq!(shell("tc qdisc show | grep -c tbf").trim(), "2");
        let calls: Vec<String> = network.calls(&pod.id).into_iter().map(|call| call.plugin).collect();
        assert_eq!(calls, ["ptp", "bandwidth", "tuning", "portmap"]);

        network.check(&pod.id).await.unwrap();
        shell("ip netns exec pod-1 ip link set eth0 mtu 1400");
        assert!(network.check(&pod.id).await.unwrap_err().to_string().contains("mtu"));
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert!(request("127.0.0.1:8080").is_err());
        assert_eq!(leases(), "");
        let left = shell("ip -o link; nft list ruleset; ls /run/tuning");
        assert!(
            !left.contains("veth") && !left.contains("ifb") && !left.contains("10.5.0.2") && !left.contains(".json"),
            "{left}"
        );
        assert_clean();
    });
}

#[test]
fn macvlan_pods_reach_each_other() {
    on_a_node(|| async {
        shell("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
        list(&format!(r#"{{"type": "macvlan", "master": "up0", {ADDRESSES}}}"#));
        let network = open(config());
        let (one, two) = (attach(&network, 1, &[]).await, attach(&network, 2, &[]).await);
        serve(&one.ns, "0.0.0.0:80");
        assert_eq!(request_from(&two.ns, "10.5.0.2:80").unwrap(), "10.5.0.3");
        network.detach(&one.id).await.unwrap();
        // The namespace is gone: the lease is released nevertheless.
        shell("ip netns del pod-2");
        drop(two.ns);
        network.detach(&two.id).await.unwrap();
        network.settle().await;
        assert_eq!(leases(), "");
        assert_clean();
    });
}

/// An address that another machine had before.
#[test]
fn neighbors_learn_of_new_addresses() {
    on_a_node(|| async {
        shell("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
        for kind in
            [r#""type": "macvlan", "master": "up0""#, r#""type": "bridge", "bridge": "test0", "macspoofchk": false"#]
        {
            shell("rm -rf /run/leases");
            list(&format!("{{{kind}, {ADDRESSES}}}"));
            let network = open(config());
            let neighbor = attach(&network, 1, &[]).await;
            shell("ip -n pod-1 neigh replace 10.5.0.3 dev eth0 lladdr 02:00:00:00:00:99 nud stale");
            let pod = attach(&network, 2, &[]).await;
            let mac = shell("ip netns exec pod-2 cat /sys/class/net/eth0/address").trim().to_owned();
            testbed::wait_until("the neighbor knows the MAC address", std::time::Duration::from_secs(10), || {
                shell("ip -n pod-1 neigh show 10.5.0.3").contains(&mac)
            });
            // The kernel announces a MAC address that is changed later.
            assert_eq!(shell("ip netns exec pod-2 cat /proc/sys/net/ipv4/conf/eth0/arp_notify"), "1\n", "{kind}");
            for pod in [neighbor, pod] {
                network.detach(&pod.id).await.unwrap();
            }
            network.settle().await;
            shell("ip netns del pod-1; ip netns del pod-2");
        }
        shell("ip link del test0");
        assert_clean();
    });
}

#[test]
fn a_failed_attachment_is_undone() {
    on_a_node(|| async {
        // The second plugin refuses the first one's result: a veth pair has no limit without a node's end.
        list(&format!(r#"{{"type": "ptp", {ADDRESSES}}}, {{"type": "tuning", "sysctl": {{"kernel.panic": "1"}}}}"#));
        let network = open(config());
        let error = try_attach(&network, 1, &[]).await.err().unwrap().to_string();
        assert!(error.contains("tuning ADD") && error.contains("not a sysctl of the network"), "{error}");
        assert_eq!(leases(), "");
        assert!(!shell("ip -o link").contains("veth"));
        // An address that is taken, and a master that does not exist.
        list(&format!(r#"{{"type": "macvlan", "master": "none0", {ADDRESSES}}}"#));
        let error = try_attach(&network, 1, &[]).await.err().unwrap().to_string();
        assert!(error.contains("find master none0: No such device"), "{error}");
        assert_eq!(leases(), "");
        assert_clean();
    });
}

/// What made ADD fail is part of the request, and DEL gets the same request.
#[test]
fn a_request_that_a_type_refuses_leaves_no_record() {
    on_a_node(|| async {
        list(&format!(r#"{{"type": "ptp", {ADDRESSES}}}, {{"type": "tuning", "dataDir": "/run/tuning"}}"#));
        let network = open(config());
        for request in [r#"{"cni-args": {"ips": ["x"]}}"#, r#"{"cni-args": {"mtu": "x"}}"#] {
            let selection = Some(NetworkSelection::parse_primary(request).unwrap());
            let pod = PodRef { selection, ..pod_ref(1) };
            let error = attach_pod(&network, 1, &pod, &[]).await.err().expect("refused").to_string();
            assert!(error.contains(" ADD") && error.contains('x'), "{error}");
            assert_eq!(files("/run/pinion/network/attachments"), Vec::<String>::new(), "{request}");
            assert_eq!(leases(), "");
        }
        // More levels than a record that can be read again has.
        let deep = format!(r#"{{"cni-args": {{"x": {}{}}}}}"#, "[".repeat(125), "]".repeat(125));
        let pod = PodRef { selection: Some(NetworkSelection::parse_primary(&deep).unwrap()), ..pod_ref(1) };
        let error = attach_pod(&network, 1, &pod, &[]).await.err().expect("refused").to_string();
        assert!(error.contains("recursion limit"), "{error}");
        assert_eq!((files("/run/pinion/network/attachments"), leases()), (Vec::new(), String::new()));
        let pod = attach(&network, 1, &[]).await;
        // A process that keeps the lock of the leases: an error after ten seconds, and no thread that is stuck.
        let arguments = ["--no-fork", "/run/leases/test/lock", "sleep", "1000"];
        let mut holder = std::process::Command::new("flock").args(arguments).spawn().unwrap();
        testbed::wait_until("the lock is held", std::time::Duration::from_secs(10), || {
            !std::process::Command::new("flock")
                .args(["-n", "/run/leases/test/lock", "true"])
                .status()
                .unwrap()
                .success()
        });
        // The first one ends in the background; the next one reports the failure.
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        let (is_unfinished, error) = (network.is_unfinished(), network.detach(&pod.id).await.err());
        holder.kill().unwrap();
        holder.wait().unwrap();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(is_unfinished && error.contains("lock /run/leases/test/lock"), "{error}");
        network.detach(&pod.id).await.unwrap();
        assert_clean();
    });
}

#[test]
fn options_that_only_the_program_has_need_the_program() {
    on_a_node(|| async {
        for plugin in [
            r#"{"type": "portmap", "conditionsV4": ["ip", "saddr", "10.0.0.0/8"]}"#,
            r#"{"type": "macvlan", "master": "up0", "ipam": {"type": "dhcp"}}"#,
            r#"{"type": "firewall"}"#,
        ] {
            list(plugin);
            let error = open(config()).ready().unwrap_err().to_string();
            assert!(error.contains("not found in /run/bin"), "{error}");
        }
        list(r#"{"type": "firewall", "backend": "nftables"}"#);
        open(config()).ready().unwrap();
    });
}

#[test]
fn a_pod_that_a_program_attached_is_detached_by_the_program() {
    on_a_node(|| async {
        list(r#"{"type": "loopback", "x": 1}, {"type": "sbr"}"#);
        fs::create_dir_all("/run/bin").unwrap();
        fs::write("/run/bin/loopback", "#!/bin/sh\necho $CNI_COMMAND >> /run/calls\n").unwrap();
        fs::copy("/run/bin/loopback", "/run/bin/sbr").unwrap();
        shell("chmod 755 /run/bin/*");
        // A record as a daemon that had no built-in types wrote it.
        let list: serde_json::Value =
            serde_json::from_str(&fs::read_to_string("/run/net.d/10.conflist").unwrap()).unwrap();
        let record = serde_json::json!({"pod": {"sandbox": "old", "name": "", "namespace": "", "uid": ""},
            "ns_path": ns_path(1), "interface": "eth0", "list": list, "addresses": [], "ports": [], "all_ports": [],
            "result": {"cniVersion": "1.1.0"}});
        fs::create_dir_all("/run/pinion/network/attachments").unwrap();
        fs::write("/run/pinion/network/attachments/old.json", record.to_string()).unwrap();
        open(config()).detach("old").await.unwrap();
        assert_eq!(fs::read_to_string("/run/calls").unwrap(), "DEL\nDEL\n");
    });
}

#[test]
fn attachments_of_a_killed_daemon_are_removed() {
    on_a_node(|| async {
        list(&format!(
            r#"{{"type": "ptp", "ipMasq": true, {ADDRESSES}}}, {{"type": "bandwidth", "egressRate": 80000000, "egressBurst": 8000000}}, {PORTMAP}"#
        ));
        let network = open(config());
        let pods = futures_util::future::join_all((1..=12).map(|number| attach(&network, number, &[])));
        let pods = pods.await;
        let ips: HashSet<IpAddr> = pods.iter().map(node::Pod::ip).collect();
        assert_eq!((ips.len(), leases().lines().count()), (12, 24));
        // Six of them end with their namespaces.
        shell("for number in 1 2 3 4 5 6; do ip netns del pod-$number; done");
        let ids: Vec<String> = pods.into_iter().map(|pod| pod.id).collect();
        drop(network);
        let network = open(config());
        let living: HashSet<String> = ids[6..].iter().cloned().collect();
        network.reconcile(&living).await.unwrap();
        assert_eq!(leases().lines().count(), 12);
        network.reconcile(&HashSet::new()).await.unwrap();
        assert_eq!(leases(), "");
        let left = shell("ip -o link; nft list ruleset");
        assert!(!left.contains("veth") && !left.contains("bwp") && !left.contains("10.5.0."), "{left}");
        assert_clean();
    });
}

/// What a detached pod had is taken by others at once: its address, its MAC address, its port, and by the pod itself.
#[test]
fn pods_follow_each_other_at_once() {
    on_a_node(|| async {
        let one = r#""ipam": {"type": "host-local", "dataDir": "/run/leases", "ranges": [[{"subnet": "10.5.0.0/24",
            "rangeStart": "10.5.0.7", "rangeEnd": "10.5.0.7"}]]}"#;
        list(&format!(r#"{{"type": "ptp", "ipMasq": true, {one}}}, {PORTMAP}"#));
        let network = open(config());
        for number in 1..=6 {
            let pod = attach(&network, number, &[tcp(8080, 80)]).await;
            assert_eq!(pod.ip().to_string(), "10.5.0.7");
            serve(&pod.ns, "0.0.0.0:80");
            assert!(request("127.0.0.1:8080").is_ok(), "pod {number}");
            network.detach(&pod.id).await.unwrap();
            // As the engine does: the path of the namespace is gone before the link is.
            shell(&format!("ip netns del pod-{number}"));
        }
        let (first, again) = (attach(&network, 1, &[tcp(8080, 80)]).await, pod_ref(1));
        let error = try_attach(&network, 2, &[tcp(8080, 81)]).await.err().unwrap().to_string();
        assert!(error.contains("8080/tcp is taken by sandbox"), "{error}");
        network.detach(&first.id).await.unwrap();
        attach_pod(&network, 1, &again, &[]).await.unwrap();
        network.detach(&first.id).await.unwrap();
        network.settle().await;
        assert_eq!(leases(), "");
        assert_clean();

        shell("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
        list(&format!(r#"{{"type": "macvlan", "master": "up0", "mac": "0a:00:00:00:00:07", {one}}}"#));
        for number in 1..=6 {
            let pod = attach(&network, number, &[]).await;
            assert!(shell(&format!("ip -n pod-{number} link show eth0")).contains("0a:00:00:00:00:07"));
            network.detach(&pod.id).await.unwrap();
        }
        network.settle().await;
        assert_eq!(leases(), "");
        assert_clean();
    });
}

#[test]
fn a_removal_that_hangs_delays_others_for_a_short_time_only() {
    on_a_node(|| async {
        list(&format!(r#"{{"type": "ptp", {ADDRESSES}}}, {PORTMAP}"#));
        let network = open(config());
        let pod = attach(&network, 1, &[tcp(8080, 80)]).await;
        let mut holder =
            std::process::Command::new("flock").args(["-o", "/run/leases/test/lock", "sleep", "60"]).spawn().unwrap();
        let is_locked = || !shell("flock -n /run/leases/test/lock true && echo free || true").contains("free");
        testbed::wait_until("the leases are locked", std::time::Duration::from_secs(10), is_locked);
        network.detach(&pod.id).await.unwrap();
        let began = std::time::Instant::now();
        network.reconcile(&HashSet::new()).await.unwrap();
        assert!(began.elapsed().as_secs() < 5, "the reconciler does not wait for it: {:?}", began.elapsed());
        let error = try_attach(&network, 2, &[tcp(8080, 80)]).await.err().unwrap().to_string();
        assert!(error.contains("8080/tcp is taken by sandbox"), "{error}");
        assert!(began.elapsed().as_secs() < 10, "the removal is still waiting for the lock: {:?}", began.elapsed());
        shell(&format!("pkill -P {}", holder.id()));
        holder.wait().unwrap();
        network.settle().await;
        // It may have failed just before, at the end of its patience.
        network.reconcile(&HashSet::new()).await.unwrap();
        assert_eq!(leases(), "");
        shell("ip netns del pod-2");
        assert_clean();
    });
}

/// The engine is killed before the background has done its part.
#[test]
fn a_detachment_that_a_killed_daemon_reported_is_completed() {
    on_a_node(|| async {
        list(&format!(r#"{{"type": "ptp", "ipMasq": true, {ADDRESSES}}}, {PORTMAP}"#));
        // A runtime of its own, which ends with all of its tasks.
        let ids: Vec<String> = std::thread::spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let ids = runtime.block_on(async {
                let network = open(config());
                let attached = (1..=8).map(|number| attach(&network, number, &[]));
                let pods = futures_util::future::join_all(attached).await;
                for pod in &pods {
                    network.detach(&pod.id).await.unwrap();
                }
                shell("for number in 1 2 3 4 5 6 7 8; do ip netns del pod-$number; done");
                pods.into_iter().map(|pod| pod.id).collect()
            });
            runtime.shutdown_background();
            ids
        })
        .join()
        .unwrap();
        let network = open(config());
        // Leaving attachments are undone even if the pods are listed as living.
        network.reconcile(&ids.into_iter().collect()).await.unwrap();
        assert_eq!((leases().as_str(), network.is_unfinished()), ("", false));
        // The kernel deletes links some time after the last descriptor of their namespace is closed.
        testbed::wait_until("links and rules of the pods are gone", std::time::Duration::from_secs(10), || {
            let left = shell("ip -o link; nft list ruleset");
            !left.contains("veth") && !left.contains("10.5.0.")
        });
        assert_clean();
    });
}
