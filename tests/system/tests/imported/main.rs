//! Daemons with configurations that `pinion config import` translated: files as nodes of containerd and CRI-O have them,
//! with mirrors behind a private CA, settings for all containers, user namespaces, and GPUs.

mod node;

use std::fs;

use node::{ImportedNode, MIRROR};
use serde_json::{Value, json};
use system_tests::{ContainerSpec, PodSpec};

const IMAGE: &str = "docker.io/library/demo:1";

/// Returns the last parts of the keys with this result, sorted.
fn keys(report: &Value, result: &str) -> Vec<String> {
    let keys = report["keys"].as_array().expect("keys").iter().filter(|key| key["result"] == result);
    let name =
        |key: &Value| key["key"].as_str().expect("a key").rsplit_once('.').map_or_else(String::new, |k| k.1.into());
    let mut keys: Vec<String> = keys.map(name).collect();
    keys.sort_unstable();
    keys
}

fn run_container(imported: &ImportedNode, pod: &PodSpec, extra: &Value) -> String {
    let pod_id = imported.node.run_pod(pod);
    let mut container = ContainerSpec::new("main", IMAGE, &["sleep", "1000"]);
    for (key, value) in extra.as_object().expect("an object") {
        container.0[key] = value.clone();
    }
    imported.node.run_container(&pod_id, pod, &container)
}

#[track_caller]
fn exec(imported: &ImportedNode, id: &str, script: &str) -> String {
    imported.node.crictl(&["exec", id, "sh", "-c", script]).ok()
}

fn end(imported: ImportedNode) {
    imported.node.remove_all_pods();
    imported.node.end();
}

#[test]
fn a_node_of_containerd_pulls_through_its_mirror_with_its_private_ca() {
    let mut imported = ImportedNode::new();
    let report = imported.import("containerd", "containerd/config.toml");
    assert_eq!((keys(&report, "unserved"), keys(&report, "unknown")), (vec![], vec![]));
    assert_eq!(report["complete"], true);
    imported.start("");
    imported.node.crictl(&["pull", IMAGE]).ok();
    let images = imported.node.crictl(&["images", "-o", "json"]).json();
    assert_eq!((&images["images"][0]["repoTags"], &images["images"][0]["pinned"]), (&json!([IMAGE]), &json!(true)));
    let pod = PodSpec::named(&imported.node, "web");
    let id = run_container(
        &imported,
        &pod,
        &json!({"command": ["sh", "-c", "yes | head -c 2000 | tr -d '\\n'; sleep 1000"]}),
    );
    assert_eq!(exec(&imported, &id, "cat /proc/sys/net/ipv4/ping_group_range"), "1\t0", "without unprivileged ICMP");
    assert_eq!(exec(&imported, &id, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start"), "0");
    assert_eq!(exec(&imported, &id, "ulimit -Sn; ulimit -Hn"), "1024\n4096", "of the base specification");
    imported.node.pinion(&["logs", &id]).ok();
    let log = imported.node.logs().join("web/main.log");
    system_tests::wait_until("the line is logged", || fs::read_to_string(&log).is_ok_and(|text| !text.is_empty()));
    let first = fs::read_to_string(&log).expect("the log").lines().next().map_or(0, |line| line.len() - 40);
    assert!((1000..=1024).contains(&first), "max_container_log_line_size: {first}");
    let metrics = imported.node.run("curl", &["-fsS", "http://127.0.0.1:1338/metrics"]).ok();
    assert!(metrics.contains("pinion_"), "{metrics}");
    end(imported);
}

#[test]
fn certificates_of_containerd_1_are_reported_and_the_hint_of_the_report_works() {
    let mut imported = ImportedNode::new();
    let report = imported.import("containerd", "containerd-mirrors/config.toml");
    assert_eq!(keys(&report, "unserved"), ["ca_file", "password", "username"]);
    assert!(!report["configuration"].as_str().expect("a text").contains("secret"), "credentials are never copied");
    let hints: Vec<&str> =
        report["keys"].as_array().into_iter().flatten().filter_map(|k| k["reason"].as_str()).collect();
    assert!(
        hints.contains(&"write it to a hosts.toml in `registries.config_dir` (ca, client, skip_verify)"),
        "{hints:?}"
    );
    let directory = imported.path("hosts");
    let directories = format!("registries.config_dir = \"{}\"\n", directory.display());
    imported.start(&format!("cgroup.driver = \"cgroupfs\"\n{directories}"));
    let error = imported.node.crictl(&["pull", IMAGE]).error();
    assert!(error.contains("certificate"), "{error}");
    let host = directory.join(MIRROR);
    fs::create_dir_all(&host).expect("a directory");
    let text = format!("ca = \"{}\"\n", imported.path("certificates/ca.crt").display());
    fs::write(host.join("hosts.toml"), text).expect("written");
    imported.node.crictl(&["pull", IMAGE]).ok();
    // `*` of containerd is also the mirror of all other registries.
    imported.node.crictl(&["pull", "quay.io/library/demo:1"]).ok();
    end(imported);
}

#[test]
fn containers_of_a_node_of_crio_have_its_limits_sysctls_capabilities_and_variables() {
    let mut imported = ImportedNode::new();
    let report = imported.import("crio", "crio/crio.conf");
    let unserved = ["allowed_annotations", "example)", "minimum_mappable_gid", "minimum_mappable_uid"];
    assert_eq!(keys(&report, "unserved"), unserved, "{report}");
    imported.start("");
    imported.node.crictl(&["pull", "demo:1"]).ok();
    let images = imported.node.crictl(&["images", "-o", "json"]).json();
    assert_eq!((&images["images"][0]["repoTags"], &images["images"][0]["pinned"]), (&json!([IMAGE]), &json!(true)));
    let pod = PodSpec::named(&imported.node, "web");
    let id = run_container(&imported, &pod, &json!({"envs": [{"key": "NODE_POOL", "value": "own"}]}));
    assert_eq!(exec(&imported, &id, "ulimit -Sn; ulimit -Hn; ulimit -c"), "1000\n2000\n0");
    let sysctls = "cd /proc/sys/net/ipv4; cat ping_group_range ip_unprivileged_port_start";
    assert_eq!(exec(&imported, &id, sysctls), "0\t4242\n80");
    // CHOWN 0, DAC_OVERRIDE 1, SETGID 6, SETUID 7, NET_BIND_SERVICE 10, NET_RAW 13.
    assert_eq!(exec(&imported, &id, "grep CapBnd /proc/self/status | cut -f2"), "00000000000024c3");
    assert_eq!(exec(&imported, &id, "echo $HTTPS_PROXY $NODE_POOL"), "http://proxy.example:3128 own");
    let pids = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null";
    assert_eq!(imported.node.crictl(&["exec", &id, "sh", "-c", pids]).stdout.trim(), "321");
    let writer = ContainerSpec::new("writer", IMAGE, &["seq", "1", "10000"]);
    let pod_id = imported.node.crictl(&["pods", "-q"]).ok();
    imported.node.run_container(&pod_id, &pod, &writer);
    let log = imported.node.logs().join("web/writer.log");
    let ends = || fs::read_to_string(&log).is_ok_and(|text| text.ends_with(" 10000\n"));
    system_tests::wait_until("all is logged", ends);
    assert!(fs::metadata(&log).expect("the log").len() <= 16384, "log_size_max");
    let metrics = imported.node.run("curl", &["-fsS", "http://127.0.0.1:9537/metrics"]).ok();
    assert!(metrics.contains("pinion_"), "{metrics}");
    end(imported);
}

#[test]
fn a_pod_of_a_node_of_crio_has_a_user_namespace_if_it_requests_one() {
    let mut imported = ImportedNode::new();
    imported.import("crio", "crio/crio.conf");
    imported.start("");
    imported.node.crictl(&["pull", IMAGE]).ok();
    let mut pod = PodSpec::named(&imported.node, "users");
    let ids = json!([{"host_id": 200_000, "container_id": 0, "length": 65536}]);
    let context = json!({"namespace_options": {"pid": 1, "userns_options": {"mode": 0, "uids": ids, "gids": ids}}});
    pod.0["linux"]["security_context"] = context.clone();
    let id = run_container(&imported, &pod, &json!({"linux": {"security_context": context}}));
    let map = exec(&imported, &id, "cat /proc/self/uid_map");
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "200000", "65536"]);
    let settings = "ulimit -Sn; ulimit -Hn; cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ping_group_range";
    assert_eq!(exec(&imported, &id, settings), "1000\n2000\n80\n0\t4242");
    assert_eq!(exec(&imported, &id, "grep CapBnd /proc/self/status | cut -f2"), "00000000000024c3");
    end(imported);
}

#[test]
fn a_node_with_gpus_has_its_devices_by_cdi_and_its_runtime_class_needs_the_program() {
    let mut imported = ImportedNode::new();
    let report = imported.import("containerd", "gpu/config.toml");
    assert_eq!((keys(&report, "unserved"), &report["complete"]), (Vec::<String>::new(), &json!(true)));
    let text = report["configuration"].as_str().expect("a text");
    assert!(text.contains("[cgroup]\ndriver = \"systemd\"\n"), "{text}");
    // The node of this test is not started by systemd.
    imported.start("cgroup.driver = \"cgroupfs\"\n");
    imported.node.crictl(&["pull", IMAGE]).ok();
    let pod = PodSpec::named(&imported.node, "training");
    let file = imported.node.file("class.json", &PodSpec::named(&imported.node, "class").0);
    let error = imported.node.crictl(&["runp", "--runtime", "nvidia", &file]).error();
    assert!(error.contains("nvidia-container-runtime cannot be executed"), "{error}");
    let id = run_container(&imported, &pod, &json!({"CDI_devices": [{"name": "nvidia.com/gpu=0"}]}));
    assert_eq!(exec(&imported, &id, "echo x > /dev/nvidia0; echo $NVIDIA_VISIBLE_DEVICES"), "void");
    end(imported);
}
