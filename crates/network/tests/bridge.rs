//! The built-in network, on the real kernel. Needs root.

mod node;

use std::collections::HashSet;

use network::Error;
use node::{
    assert_clean, attach, config, files, on_a_node, open, outside, pod_ref, request, request_from, serve, try_attach,
};
use testbed::shell;

#[test]
fn pods_reach_each_other_the_node_and_the_outside() {
    on_a_node(|| async {
        let (network, outside) = (open(config()), outside());
        assert_eq!(network.describe(), "bridge pinion0 10.85.0.0/16 (built in)");
        network.ready().unwrap();
        let (a, b) = (attach(&network, 1, &[]).await, attach(&network, 2, &[]).await);
        assert_eq!((a.ip().to_string(), b.ip().to_string()), ("10.85.0.2".into(), "10.85.0.3".into()));
        assert_eq!(a.attachment.interface, "eth0");
        for pod in [&a, &b] {
            serve(&pod.ns, "0.0.0.0:80");
        }
        serve(&outside, "192.0.2.2:80");
        assert_eq!(request_from(&a.ns, "10.85.0.3:80").unwrap(), "10.85.0.2", "no translation between pods");
        assert_eq!(request("10.85.0.2:80").unwrap(), "10.85.0.1");
        assert_eq!(request_from(&a.ns, "192.0.2.2:80").unwrap(), "192.0.2.1", "the outside sees the node's address");
        let counters = network.counters(&a.ns).unwrap();
        assert_eq!(counters.len(), 1);
        assert!(
            counters[0].interface == "eth0" && counters[0].rx_bytes > 0 && counters[0].tx_bytes > 0,
            "{counters:?}"
        );
        // The node's ends give the same counters without entering the pod.
        let bridged = network.bridged_counters(&[&a.id, &b.id, "never-attached"]).unwrap();
        let after = network.counters(&a.ns).unwrap();
        assert_eq!(bridged.len(), 2);
        let values = |c: &network::Counters| [c.rx_bytes, c.rx_packets, c.tx_bytes, c.tx_packets];
        for (between, (before, after)) in
            values(&bridged[&a.id]).iter().zip(values(&counters[0]).iter().zip(&values(&after[0])))
        {
            assert!(before <= between && between <= after, "{counters:?} {bridged:?} {after:?}");
        }
        network.detach(&a.id).await.unwrap();
        network.detach(&a.id).await.unwrap();
        network.detach(&b.id).await.unwrap();
        network.detach("never-attached").await.unwrap();
        network.settle().await;
        assert_clean();
        network.teardown().await.unwrap();
        assert!(!shell("ip -o link").contains("pinion0"));
        assert_eq!(shell("nft list tables").trim(), "");
    });
}

#[test]
fn both_families() {
    on_a_node(|| async {
        let outside = outside();
        shell("ip -n outside -6 route add default via fd02::1");
        let network = open(network::Config { subnet6: Some("fd00:85::/64".into()), ..config() });
        let (a, b) = (attach(&network, 1, &[node::tcp(8080, 80)]).await, attach(&network, 2, &[]).await);
        assert_eq!(a.attachment.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.85.0.2", "fd00:85::2"]);
        serve(&a.ns, "[::]:80");
        serve(&outside, "[fd02::2]:80");
        assert_eq!(request_from(&b.ns, "[fd00:85::2]:80").unwrap(), "fd00:85::3");
        assert_eq!(request_from(&b.ns, "[fd02::2]:80").unwrap(), "fd02::1");
        assert_eq!(request_from(&outside, "[fd02::1]:8080").unwrap(), "fd02::2");
        assert!(request_from(&outside, "192.0.2.1:8080").unwrap().ends_with("192.0.2.2"));
        network.detach(&a.id).await.unwrap();
        network.detach(&b.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn a_pod_whose_namespace_is_gone_is_detached() {
    on_a_node(|| async {
        let network = open(config());
        let pod = attach(&network, 1, &[node::tcp(8080, 80)]).await;
        shell("umount /run/netns/.store/pod-1");
        drop(pod.ns);
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn an_exhausted_subnet_is_reported_and_leaves_nothing() {
    on_a_node(|| async {
        let network = open(network::Config { subnet: "10.85.7.0/30".into(), ..config() });
        let pod = attach(&network, 1, &[]).await;
        let error = try_attach(&network, 2, &[]).await.err().unwrap();
        assert!(
            matches!(error, Error::Exhausted { leased: 1, .. }) && error.to_string().contains("10.85.7.0/30"),
            "{error}"
        );
        assert_eq!((files("leases").len(), files("attachments").len()), (1, 1));
        // The address is free as soon as the link is gone; an attachment waits for that.
        network.detach(&pod.id).await.unwrap();
        let next = attach(&network, 3, &[]).await;
        assert_eq!(next.ip().to_string(), "10.85.7.2");
        network.detach(&next.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn objects_that_others_delete_are_restored() {
    on_a_node(|| async {
        let network = open(config());
        let a = attach(&network, 1, &[node::tcp(8080, 80)]).await;
        serve(&a.ns, "0.0.0.0:80");
        shell("nft flush ruleset");
        let b = attach(&network, 2, &[node::tcp(8081, 80)]).await;
        assert!(request("127.0.0.1:8080").is_ok(), "adding one port restores the table with all ports");
        shell("nft flush ruleset");
        let living = HashSet::from([a.id.clone(), b.id.clone()]);
        network.reconcile(&living).await.unwrap();
        assert!(request("127.0.0.1:8080").is_ok());
        shell("ip link delete pinion0");
        let c = attach(&network, 3, &[]).await;
        assert!(shell("ip -o link show master pinion0").contains("pin3"), "{}", c.id);
    });
}

#[test]
fn a_second_daemon_is_refused_and_a_successor_continues() {
    on_a_node(|| async {
        let network = open(config());
        let error = network::Network::open(config()).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        let a = attach(&network, 1, &[node::tcp(8080, 80)]).await;
        let again = network.attach(&pod_ref(1), &a.ns, &node::ns_path(1), &[]).await.unwrap_err();
        assert!(matches!(again, Error::Attached(_)), "{again}");
        assert!(network.teardown().await.unwrap_err().to_string().contains("1 pods are attached"));
        drop(network);
        let network = open(config());
        serve(&a.ns, "0.0.0.0:80");
        assert!(request("127.0.0.1:8080").is_ok());
        let error = try_attach(&network, 2, &[node::tcp(8080, 80)]).await.err().unwrap();
        assert!(error.to_string().contains("host port 8080/tcp is taken by sandbox 1000"), "{error}");
        assert_eq!(attach(&network, 3, &[]).await.ip().to_string(), "10.85.0.3", "10.85.0.2 is not leased again");
        network.reconcile(&HashSet::from([a.id.clone()])).await.unwrap();
        assert!(request("127.0.0.1:8080").is_ok());
        network.detach(&a.id).await.unwrap();
    });
}

#[test]
fn invalid_settings_are_named() {
    on_a_node(|| async {
        let with = |bridge: &str, subnet: &str, subnet6: Option<&str>| {
            let base = config();
            let config = network::Config {
                bridge: bridge.into(),
                subnet: subnet.into(),
                subnet6: subnet6.map(Into::into),
                ..base
            };
            network::Network::open(config).map(drop).unwrap_err().to_string()
        };
        assert!(with("a/b", "10.0.0.0/24", None).starts_with("network.bridge: \"a/b\""));
        assert!(with("b0", "10.0.0.0/31", None).starts_with("network.subnet: subnet 10.0.0.0/31 is too small"));
        assert!(with("b0", "10.0.0.0/24", Some("10.1.0.0/24")).starts_with("network.subnet6: 10.1.0.0/24 is not IPv6"));
        shell(
            "ip link add other type veth peer name other1 && ip addr add 10.85.3.1/24 dev other && ip link set other up",
        );
        let network = open(config());
        let error = network.ready().unwrap_err().to_string();
        assert!(error.contains("10.85.3.0/24 on other"), "{error}");
        shell("ip link delete other && ip link add pinion0 type veth peer name x");
        let error = try_attach(&network, 1, &[]).await.err().unwrap().to_string();
        assert!(error.contains("is a \"veth\", not a bridge"), "{error}");
        assert_clean();
    });
}
