//! Networks that pods select, what plugins get of a pod, and checks of attachments.

mod node;

use std::{fs, os::unix::fs::PermissionsExt};

use node::{Node, TIMEOUT, exec, on_a_node, script};
use pod::{Dns, Engine, ErrorKind, SandboxConfig, SandboxState};
use serde_json::{Value, json};
use testbed::{shell, wait_until};

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Installs a plugin that records its input. Its `CHECK` fails while `/run/broken` exists.
fn install(node: &mut Node) {
    fs::create_dir_all("/run/bin").expect("directory");
    let script = r#"#!/bin/sh
cat > /run/input.$CNI_COMMAND.$CNI_IFNAME
echo "$CNI_COMMAND $CNI_IFNAME" >> /run/calls
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"x","mac":"02:00:00:00:00:01"}],
    "ips":[{"address":"10.9.0.7/24","interface":0}]}';;
CHECK) [ ! -e /run/broken ] || { echo '{"code": 100, "msg": "the route is missing"}'; exit 1; };;
esac
"#;
    fs::write("/run/bin/net", script).expect("plugin");
    fs::set_permissions("/run/bin/net", fs::Permissions::from_mode(0o755)).expect("mode");
    node.config.network.cni_bin_dirs = vec!["/run/bin".into()];
}

fn list(name: &str, plugin: &Value) {
    fs::create_dir_all("/run/net.d").expect("directory");
    let list = json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]});
    fs::write(format!("/run/net.d/{name}.conflist"), list.to_string()).expect("list");
}

fn bridge(name: &str, subnet: &str) -> Value {
    json!({"type": "bridge", "bridge": name, "isGateway": true, "ipam": {"type": "host-local", "subnet": subnet}})
}

fn input(command: &str, interface: &str) -> Value {
    let text = fs::read_to_string(format!("/run/input.{command}.{interface}")).expect("the plugin was called");
    serde_json::from_str(&text).expect("JSON")
}

fn calls() -> Vec<String> {
    fs::read_to_string("/run/calls").unwrap_or_default().lines().map(str::to_owned).collect()
}

fn with(node: &Node, name: &str, annotations: &[(&str, &str)]) -> SandboxConfig {
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    SandboxConfig { annotations, ..node.sandbox(name) }
}

fn info(engine: &Engine, pod: &pod::SandboxId) -> Value {
    engine.inspect_sandbox(pod).expect("the pod exists")
}

#[test]
fn a_pod_selects_networks_by_its_annotation() {
    on_a_node(|mut node| async move {
        install(&mut node);
        list("00-cluster", &bridge("br-c", "10.1.0.0/24"));
        list("storage", &bridge("br-s", "10.2.0.0/24"));
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(with(&node, "web", &[(NETWORKS, "storage@st0, pinion")])).await.expect("run");
        let id = node.run(&engine, &pod, script("one", "exec sleep 1000")).await;
        let addresses = exec(&engine, &id, "ip -o -4 addr").await;
        for (interface, address) in [("eth0", "10.1.0.2"), ("st0", "10.2.0.2"), ("net2", "10.85.0.2")] {
            assert!(addresses.lines().any(|l| l.contains(interface) && l.contains(address)), "{addresses}");
        }
        assert_eq!(engine.sandbox(&pod).expect("pod").ips.len(), 1, "kubelet gets the primary address only");
        let status = info(&engine, &pod)["k8s.v1.cni.cncf.io/network-status"].clone();
        let names: Vec<String> = status.as_array().expect("a list").iter().map(|one| one["name"].to_string()).collect();
        assert_eq!(names, ["\"00-cluster\"", "\"default/storage\"", "\"default/pinion\""], "{status}");
        assert_eq!((&status[1]["interface"], &status[1]["ips"][0]), (&json!("st0"), &json!("10.2.0.2")));
        // Another daemon knows them, and detaches the pod from all.
        drop(engine);
        let engine = node.open().await;
        assert_eq!(info(&engine, &pod)["k8s.v1.cni.cncf.io/network-status"], status);
        assert!(exec(&engine, &id, "ip -o link").await.contains("st0"));
        engine.remove_sandbox(&pod).await.expect("remove");
        wait_until("the links are gone", TIMEOUT, || shell("ip -o link show type veth").is_empty());
        for (value, reason) in
            [("absent", "network absent"), ("a;b", NETWORKS), (r#"[{"name": "storage", "ips": ["x"]}]"#, "address")]
        {
            let error = engine.run_sandbox(with(&node, "bad", &[(NETWORKS, value)])).await.expect_err(value);
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn plugins_get_the_capabilities_that_they_declare() {
    on_a_node(|mut node| async move {
        install(&mut node);
        let names =
            ["portMappings", "bandwidth", "dns", "cgroupPath", "mac", "ips", "io.kubernetes.cri.pod-annotations"];
        let capabilities: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!(true))).collect();
        list("10-net", &json!({"type": "net", "capabilities": capabilities}));
        let engine = node.open().await;
        let annotations = [
            ("kubernetes.io/ingress-bandwidth", "10M"),
            ("kubernetes.io/egress-bandwidth", "1500.5"),
            ("io.pinion.network", r#"{"ips": ["10.9.0.7"], "mac": "02:00:00:00:00:01"}"#),
        ];
        let mut config = with(&node, "web", &annotations);
        config.dns = Some(Dns {
            servers: vec!["10.0.0.53".into()],
            searches: vec!["a.b".into()],
            options: vec!["ndots:5".into()],
        });
        config.ports =
            vec![pod::PortMapping { protocol: pod::Protocol::Udp, container_port: 53, host_port: 5353, host_ip: None }];
        let pod = engine.run_sandbox(config).await.expect("run");
        let runtime = input("ADD", "eth0")["runtimeConfig"].clone();
        let burst = u32::MAX;
        assert_eq!(
            runtime["bandwidth"],
            json!({"ingressRate": 10_000_000, "ingressBurst": burst, "egressRate": 1501, "egressBurst": burst})
        );
        assert_eq!(runtime["dns"], json!({"servers": ["10.0.0.53"], "searches": ["a.b"], "options": ["ndots:5"]}));
        assert_eq!(
            runtime["portMappings"],
            json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": ""}])
        );
        assert_eq!((&runtime["ips"], &runtime["mac"]), (&json!(["10.9.0.7"]), &json!("02:00:00:00:00:01")));
        assert_eq!(runtime["io.kubernetes.cri.pod-annotations"]["kubernetes.io/ingress-bandwidth"], "10M");
        engine.remove_sandbox(&pod).await.expect("remove");
        assert_eq!(input("DEL", "eth0")["runtimeConfig"], runtime, "DEL gets the same");
        for (key, value) in [("kubernetes.io/ingress-bandwidth", "10 cows"), ("io.pinion.network", "[]")] {
            let error = engine.run_sandbox(with(&node, "bad", &[(key, value)])).await.expect_err(value);
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(&format!("annotation {key}")), "{error}");
        }
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn recovered_pods_are_checked_and_a_problem_is_only_reported() {
    on_a_node(|mut node| async move {
        install(&mut node);
        list("10-net", &json!({"type": "net"}));
        list("20-side", &json!({"type": "net"}));
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(with(&node, "web", &[(NETWORKS, "20-side")])).await.expect("run");
        let id = node.run(&engine, &pod, script("one", "exec sleep 1000")).await;
        assert_eq!(calls(), ["ADD eth0", "ADD net1"]);
        drop(engine);
        fs::write("/run/broken", "").expect("file");
        let engine = node.open().await;
        wait_until("the check is done", TIMEOUT, || info(&engine, &pod)["networkCheck"].is_string());
        assert_eq!(calls()[2..], ["CHECK eth0", "CHECK net1"]);
        assert_eq!(input("CHECK", "net1")["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
        let problem = info(&engine, &pod)["networkCheck"].to_string();
        assert!(problem.contains("CNI plugin net CHECK: the route is missing (code 100)"), "{problem}");
        let why = engine.why("default/web").expect("why");
        let failed =
            |stage: &&pod::TimelineStage| stage.name == "CNI plugin net CHECK" && stage.failure.contains("route");
        assert_eq!(why[0].timeline.iter().filter(failed).count(), 2, "{:?}", why[0].timeline);
        assert_eq!(engine.sandbox(&pod).expect("pod").state, SandboxState::Ready);
        assert_eq!(exec(&engine, &id, "echo works").await, "works\n");
        // On request.
        assert!(engine.check_network(&pod).await.expect("known").is_some());
        fs::remove_file("/run/broken").expect("file");
        assert_eq!(engine.check_network(&pod).await.expect("known"), None);
        assert!(info(&engine, &pod)["networkCheck"].is_null());
        engine.stop_sandbox(&pod).await.expect("stop");
        assert_eq!(calls()[calls().len() - 2..], ["DEL net1", "DEL eth0"]);
        assert_eq!(engine.check_network(&pod).await.expect("known"), None, "a stopped pod has no network");
        node.assert_nothing_left(engine).await;
    });
}
