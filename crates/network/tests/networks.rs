//! Pods with several networks.

mod node;

use std::{collections::HashSet, fs};

use node::{
    assert_clean, attach, attach_pod, config, files, on_a_node, open,
    plugins::{RESULT, json, list, named_list, order, plugin, recorded},
    pod_links, pod_ref, pod_with, request, request_from, serve, tcp,
};
use serde_json::json;
use testbed::shell;

/// A built-in bridge without a default route.
fn bridge(name: &str, subnet: &str) -> String {
    format!(
        r#"{{"type": "bridge", "bridge": "{name}", "isGateway": true, "ipam": {{"type": "host-local", "subnet": "{subnet}"}}}}"#
    )
}

const PORTMAP: &str = r#"{"type": "portmap", "capabilities": {"portMappings": true}}"#;

#[test]
fn a_pod_is_attached_to_the_networks_that_it_selects() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        named_list("store", "1.0.0", &format!("{}, {PORTMAP}", bridge("br-s", "10.2.0.0/24")));
        let network = open(config());
        let annotation = r#"[{"name": "store", "portMappings": [{"hostPort": 9090, "containerPort": 90}]},
            {"name": "store", "namespace": "other", "interface": "st1"}, {"name": "pinion"}]"#;
        let pod = attach_pod(&network, 1, &pod_with(1, annotation), &[tcp(8080, 80)]).await.unwrap();
        let status = pod.attachment.network_status();
        let short = |n: usize| {
            let one = &status[n];
            format!("{} {} {} {}", one["name"], one["interface"], one["ips"][0], one["default"]).replace('"', "")
        };
        assert_eq!(short(0), "aa eth0 10.1.0.2 true");
        assert_eq!(short(1), "default/store net1 10.2.0.2 false");
        assert_eq!(short(2), "other/store st1 10.2.0.3 false");
        assert_eq!(short(3), "default/pinion net3 10.85.0.2 false");
        assert_eq!(pod.ip().to_string(), "10.1.0.2", "the pod's address is that of its primary network");
        let links = shell("ip -n pod-1 -o -4 addr");
        for (interface, address) in
            [("eth0", "10.1.0.2"), ("net1", "10.2.0.2"), ("st1", "10.2.0.3"), ("net3", "10.85.0.2")]
        {
            assert!(links.lines().any(|l| l.contains(&format!("{interface} ")) && l.contains(address)), "{links}");
        }
        let mac = shell("ip -n pod-1 -br link show net1");
        assert!(mac.contains(status[1]["mac"].as_str().unwrap()), "{mac}");
        serve(&pod.ns, "0.0.0.0:90");
        assert!(request("10.2.0.2:90").is_ok() && request("10.2.0.3:90").is_ok());
        assert!(request("127.0.0.1:9090").is_ok(), "the port of the second network is mapped");
        // The primary network of this test has no portmap.
        assert!(!node::ports().contains("8080"));
        assert_eq!(network.counters(&pod.ns).unwrap().len(), 4);
        assert!(network.bridged_counters(&[&pod.id]).unwrap().is_empty(), "counted in its namespace");
        assert_eq!((files("attachments").len(), files("leases").len(), pod_links().len()), (4, 4, 4));
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_clean();
        assert!(attach_pod(&network, 1, &pod_with(1, "store"), &[]).await.is_ok(), "it can be attached again");
    });
}

#[test]
fn a_failure_of_one_network_undoes_the_others() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        plugin("good", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        plugin("bad", "[ $CNI_COMMAND != ADD ] || exit 1");
        named_list("good", "1.0.0", r#"{"type": "good"}"#);
        named_list("bad", "1.0.0", r#"{"type": "bad"}"#);
        let network = open(config());
        let error = attach_pod(&network, 1, &pod_with(1, "good,bad,good@last"), &[]).await.err().unwrap().to_string();
        assert!(error.contains("CNI plugin bad ADD"), "{error}");
        network.settle().await;
        assert_eq!(order(), ["good ADD", "bad ADD", "bad DEL", "good DEL"]);
        assert_clean();
        // A network that does not exist is found before anything is made.
        let error = attach_pod(&network, 1, &pod_with(1, "good,absent"), &[]).await.err().unwrap();
        assert_eq!(error.kind(), network::ErrorKind::Invalid);
        assert!(error.to_string().contains("network absent: no file of /run/net.d"), "{error}");
        assert_eq!(order().len(), 4);
        assert_clean();
        let error = attach_pod(&network, 1, &pod_with(1, "a;b"), &[]).await.err().unwrap();
        assert_eq!(error.kind(), network::ErrorKind::Invalid);
        assert!(error.to_string().starts_with("annotation k8s.v1.cni.cncf.io/networks: "), "{error}");
        // Ports belong to attachments: the second one is refused, and the first is undone.
        named_list("port", "1.0.0", &format!("{}, {PORTMAP}", bridge("br-p", "10.3.0.0/24")));
        let port = r#"{"name": "port", "portMappings": [{"hostPort": 7000, "containerPort": 1}]}"#;
        let both = format!("[{port}, {port}]");
        let error = attach_pod(&network, 1, &pod_with(1, &both), &[]).await.err().unwrap();
        assert_eq!(error.kind(), network::ErrorKind::InUse);
        network.settle().await;
        assert_clean();
        let pod = attach_pod(&network, 1, &pod_with(1, &format!("[{port}]")), &[]).await.unwrap();
        serve(&pod.ns, "0.0.0.0:1");
        assert!(request("127.0.0.1:7000").is_ok());
    });
}

#[test]
fn programs_get_what_the_pod_requests_of_the_network() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        let answer = r#"echo '{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"x","mac":"02:00:00:00:00:05"}],
            "ips":[{"address":"10.9.0.7/24","interface":0}]}'"#;
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {answer}"));
        let all = [
            "ips",
            "mac",
            "infinibandGUID",
            "bandwidth",
            "portMappings",
            "aliases",
            "ipRanges",
            "dns",
            "cgroupPath",
            "deviceID",
        ];
        let all: Vec<String> = all.iter().map(|name| format!("\"{name}\": true")).collect();
        let plugins = format!(
            r#"{{"type": "net", "args": {{"cni": {{"vlan": 4}}}}, "capabilities": {{{}}}}}, {{"type": "net", "capabilities": {{"mac": false}}}}"#,
            all.join(", ")
        );
        named_list("full", "1.0.0", &plugins);
        let annotation = r#"[{"name": "full", "ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:05",
            "infiniband-guid": "c2:11:22:33:44:55:66:77", "bandwidth": {"egressRate": 1000, "egressBurst": 2000},
            "portMappings": [{"hostPort": 81, "containerPort": 82, "protocol": "udp"}], "cni-args": {"vlan": 5, "x": [1]},
            "io.pinion.aliases": ["db"], "io.pinion.ip-ranges": [[{"subnet": "10.9.0.0/24"}]],
            "io.pinion.device-id": "0000:04:00.5"}]"#;
        let network = open(config());
        let mut pod = pod_with(1, annotation);
        pod.capability_args = [
            ("dns".to_owned(), json!({"servers": ["1.1.1.1"]})),
            ("cgroupPath".to_owned(), json!("/pods/x")),
            // The annotations of Kubernetes limit the primary network only.
            ("bandwidth".to_owned(), json!({"ingressRate": 7})),
        ]
        .into();
        // The second plugin of the list overwrites what the first one recorded.
        let first = r#"[ -e /run/calls/first ] || { cp /run/calls/net.ADD.json /run/calls/first; }"#;
        plugin("net", &format!("[ $CNI_COMMAND != ADD ] || {{ {first}; {answer}; }}"));
        attach_pod(&network, 1, &pod, &[tcp(8080, 80)]).await.unwrap();
        let expected = json!({
            "ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:05", "infinibandGUID": "c2:11:22:33:44:55:66:77",
            "bandwidth": {"egressRate": 1000, "egressBurst": 2000}, "aliases": ["db"],
            "ipRanges": [[{"subnet": "10.9.0.0/24"}]], "dns": {"servers": ["1.1.1.1"]}, "cgroupPath": "/pods/x",
            "deviceID": "0000:04:00.5",
            "portMappings": [{"hostPort": 81, "containerPort": 82, "protocol": "udp", "hostIP": ""}],
        });
        let first = json("first");
        assert_eq!(first["runtimeConfig"], expected);
        let (ips, mac) = (json!(["10.9.0.7/24"]), "02:00:00:00:00:05");
        assert_eq!(
            first["args"]["cni"],
            json!({"vlan": 4, "x": [1], "ips": ips, "mac": mac}),
            "the file has precedence"
        );
        let second = json("net.ADD.json");
        assert_eq!(second.get("runtimeConfig"), None, "a capability that is not declared is not passed");
        assert_eq!(second["args"]["cni"], json!({"vlan": 5, "x": [1], "ips": ips, "mac": mac}));
        let env = recorded("net.ADD.env");
        assert!(env.contains("CNI_IFNAME=net1\n"), "{env}");
        assert!(env.contains(";IP=10.9.0.7/24;MAC=02:00:00:00:00:05"), "{env}");
        // DEL gets the same.
        network.detach(&pod.sandbox).await.unwrap();
        assert_eq!(json("net.DEL.json")["runtimeConfig"], expected);
        network.settle().await;
        assert_clean();
        // Requests that no plugin honours make the attachment fail.
        for (request, reason) in
            [(r#""ips": ["10.9.0.8"]"#, "10.9.0.8"), (r#""mac": "02:00:00:00:00:06""#, "02:00:00:00:00:06")]
        {
            let pod = pod_with(2, &format!(r#"[{{"name": "full", {request}}}]"#));
            let error = attach_pod(&network, 2, &pod, &[]).await.err().unwrap().to_string();
            assert!(error.starts_with("network full: its plugins did not assign") && error.contains(reason), "{error}");
            network.settle().await;
            assert_clean();
        }
    });
}

#[test]
fn a_network_can_have_the_default_route() {
    on_a_node(|| async {
        let primary = r#"{"type": "bridge", "bridge": "br-a", "isDefaultGateway": true, "ipam": {"type": "host-local",
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]}}"#;
        named_list("aa", "1.0.0", primary);
        named_list("bb", "1.0.0", &bridge("br-b", "10.2.0.0/24"));
        let network = open(config());
        let annotation = r#"[{"name": "bb", "default-route": ["10.2.0.1"]}]"#;
        attach_pod(&network, 1, &pod_with(1, annotation), &[]).await.unwrap();
        assert_eq!(shell("ip -n pod-1 -4 route show default").trim(), "default via 10.2.0.1 dev net1");
        let ipv6 = shell("ip -n pod-1 -6 route show default");
        assert!(ipv6.contains("via fd01::1 dev eth0") && ipv6.lines().count() == 1, "{ipv6}");
        // Without a request the default route is that of the primary network.
        attach_pod(&network, 2, &pod_with(2, "bb"), &[]).await.unwrap();
        assert!(shell("ip -n pod-2 -4 route show default").contains("via 10.1.0.1 dev eth0"));
        // Also if that network has one, too.
        attach_pod(&network, 4, &pod_with(4, "aa,pinion"), &[]).await.unwrap();
        assert_eq!(shell("ip -n pod-4 -4 route show default").trim(), "default via 10.1.0.1 dev eth0");
        network.detach(&pod_ref(4).sandbox).await.unwrap();
        // A gateway that cannot be reached.
        let annotation = r#"[{"name": "bb", "default-route": ["192.0.2.1"]}]"#;
        let error = attach_pod(&network, 3, &pod_with(3, annotation), &[]).await.err().unwrap().to_string();
        assert!(error.contains("set default route net1 in the pod"), "{error}");
        network.settle().await;
        assert_eq!(files("attachments").len(), 4);
    });
}

#[test]
fn a_plugin_that_reads_the_annotation_keeps_its_task() {
    on_a_node(|| async {
        plugin("multus", &format!("[ $CNI_COMMAND != ADD ] || {RESULT}"));
        list("00-multus.conf", "0.3.1", r#"{"type": "multus"}"#);
        let network = open(config());
        let pod = attach_pod(&network, 1, &pod_with(1, "unknown-here; not valid"), &[]).await.unwrap();
        assert!(pod.attachment.secondary.is_empty());
        assert_eq!(order(), ["multus ADD"]);
    });
}

#[test]
fn pods_select_only_networks_that_are_selectable() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        named_list("bb", "1.0.0", &bridge("br-b", "10.2.0.0/24"));
        let with = |names: &[&str]| {
            let selectable = names.iter().map(|name| (*name).to_owned()).collect();
            open(network::Config { selectable, ..config() })
        };
        let network = with(&[]);
        let pod = attach_pod(&network, 1, &pod_with(1, "bb"), &[]).await.unwrap();
        assert!(pod.attachment.secondary.is_empty(), "as without an implementation of the annotation");
        drop(network);
        let attempt = async |network: &network::Network, number: u32, networks: &str| {
            attach_pod(network, number, &pod_with(number, networks), &[])
                .await
                .map(|pod| pod.attachment.secondary.len())
        };
        // Every network of the directory, but not the built-in one.
        let network = with(&["*"]);
        assert_eq!(attempt(&network, 2, "bb,aa").await.unwrap(), 2);
        let error = attempt(&network, 3, "bb,pinion").await.unwrap_err();
        assert_eq!(error.kind(), network::ErrorKind::Invalid);
        assert!(error.to_string().contains("network pinion: pods may not select it"), "{error}");
        drop(network);
        let network = with(&["pinion"]);
        assert_eq!(attempt(&network, 4, "pinion").await.unwrap(), 1);
        assert!(attempt(&network, 5, "bb").await.unwrap_err().to_string().contains("network.selectable"));
        // Addresses of the primary network.
        let selection = network::NetworkSelection::parse_primary("{}").ok();
        let pod = network::PodRef { selection, ..pod_ref(6) };
        let error = attach_pod(&network, 6, &pod, &[]).await.err().unwrap().to_string();
        assert!(error.contains("network aa: pods may not select it or request addresses"), "{error}");
    });
}

#[test]
fn networks_are_undone_after_a_crash_and_retried_one_by_one() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        plugin(
            "net",
            &format!("[ $CNI_COMMAND != ADD ] || {RESULT}\n[ $CNI_COMMAND != DEL ] || [ ! -e /run/fail.$CNI_IFNAME ]"),
        );
        named_list("net", "1.0.0", r#"{"type": "net"}"#);
        named_list("port", "1.0.0", &format!("{}, {PORTMAP}", bridge("br-p", "10.3.0.0/24")));
        let network = open(config());
        let port = r#"[{"name": "net"}, {"name": "net"}, {"name": "port", "portMappings": [{"hostPort": 7000, "containerPort": 1}]}]"#;
        let living = attach_pod(&network, 1, &pod_with(1, port), &[]).await.unwrap();
        attach_pod(&network, 2, &pod_with(2, "net,net@x2,port"), &[]).await.unwrap();
        drop(network);
        // A new daemon: the second pod is gone.
        fs::write("/run/fail.x2", "").unwrap();
        let network = open(config());
        let alive = HashSet::from([living.id.clone()]);
        let error = network.reconcile(&alive).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin net DEL"), "{error}");
        assert!(network.is_unfinished());
        let left: Vec<String> =
            files("attachments").into_iter().filter(|name| name.contains(&pod_ref(2).sandbox)).collect();
        assert_eq!(left, [format!("attachments/{}@x2.leaving", pod_ref(2).sandbox)]);
        fs::remove_file("/run/fail.x2").unwrap();
        network.reconcile(&alive).await.unwrap();
        assert_eq!((files("attachments").len(), files("leases").len(), pod_links().len()), (4, 2, 2));
        serve(&living.ns, "0.0.0.0:1");
        assert!(
            request("127.0.0.1:7000").is_ok() && request("10.3.0.2:1").is_ok(),
            "the living pod keeps its networks"
        );
        let dels = order().iter().filter(|call| call.as_str() == "net DEL").count();
        assert_eq!(dels, 3, "the attachment that succeeded is not undone again");
        // The living pod is detached by the new daemon.
        fs::write("/run/fail.net2", "").unwrap();
        let error = network.detach(&living.id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin net DEL"), "{error}");
        network.settle().await;
        assert_eq!(files("attachments"), [format!("attachments/{}@net2.leaving", living.id)], "only that one stays");
        network.detach(&living.id).await.unwrap_err();
        fs::remove_file("/run/fail.net2").unwrap();
        network.detach(&living.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn a_hanging_network_is_killed_and_cancelled_like_the_primary_one() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        plugin("slow", "[ $CNI_COMMAND = ADD ] || exit 0\ntouch /run/calls/began\nsleep 1013");
        named_list("slow", "1.0.0", r#"{"type": "slow"}"#);
        let limited = network::Network::open_with_limit(config(), std::time::Duration::from_millis(500)).unwrap();
        let error = attach_pod(&limited, 1, &pod_with(1, "slow"), &[]).await.err().unwrap().to_string();
        assert!(error.contains("timed out after 0.5 s"), "{error}");
        limited.settle().await;
        assert_clean();
        drop(limited);
        fs::remove_file("/run/calls/began").unwrap();
        let network = open(config());
        let task = {
            let network = network.clone();
            tokio::spawn(async move { attach_pod(&network, 2, &pod_with(2, "slow"), &[]).await.err() })
        };
        node::eventually("the plugin runs", || std::path::Path::new("/run/calls/began").exists()).await;
        // Other pods are attached in the meantime, also to the same network's primary.
        attach(&network, 3, &[]).await;
        network.cancel(&pod_ref(2).sandbox);
        let error = task.await.unwrap().expect("cancelled").to_string();
        assert!(error.contains("the pod is being stopped"), "{error}");
        assert!(!shell("ps -eo args").lines().any(|line| line == "sleep 1013"));
        network.detach(&pod_ref(3).sandbox).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn a_built_in_bridge_assigns_requested_addresses() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        let plugin = r#"{"type": "bridge", "bridge": "br-s", "isGateway": true, "capabilities": {"ips": true, "mac": true},
            "ipam": {"type": "host-local", "subnet": "10.2.0.0/24", "dataDir": "/run/cni"}}"#;
        named_list("store", "1.0.0", plugin);
        let network = open(config());
        let annotation =
            r#"[{"name": "store", "ips": ["10.2.0.50/24"], "mac": "02:00:00:00:00:50"}, {"name": "store"}]"#;
        let pod = attach_pod(&network, 1, &pod_with(1, annotation), &[]).await.unwrap();
        let status = pod.attachment.network_status();
        assert_eq!((&status[1]["ips"][0], &status[1]["mac"]), (&json!("10.2.0.50"), &json!("02:00:00:00:00:50")));
        let link = shell("ip -n pod-1 -o addr show net1 && ip -n pod-1 -o link show net1");
        assert!(link.contains("10.2.0.50/24") && link.contains("02:00:00:00:00:50"), "{link}");
        network.check(&pod.id).await.unwrap();
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_clean();
        assert_eq!(shell("ls /run/cni/store | grep ^10 || true"), "", "the leases are released");
    });
}

#[test]
fn pods_of_several_networks_reach_each_other() {
    on_a_node(|| async {
        named_list("aa", "1.0.0", &bridge("br-a", "10.1.0.0/24"));
        named_list("bb", "1.0.0", &bridge("br-b", "10.2.0.0/24"));
        let network = open(config());
        let one = attach_pod(&network, 1, &pod_with(1, "bb"), &[]).await.unwrap();
        let two = attach_pod(&network, 2, &pod_with(2, "bb"), &[]).await.unwrap();
        serve(&two.ns, "0.0.0.0:80");
        assert_eq!(request_from(&one.ns, "10.2.0.3:80").unwrap(), "10.2.0.2");
        assert_eq!(request_from(&one.ns, "10.1.0.3:80").unwrap(), "10.1.0.2");
    });
}
