//! Runs the CNI reference plugins as programs, by names that are not built in:
//! `PINION_TEST_CNI_BIN=<directory> cargo test -p network --features reference-plugins`

mod node;

use std::{collections::HashSet, fs, os::unix::fs::symlink, path::Path};

use node::{attach, attach_pod, config, files, on_a_node, open, plugins::named_list, pod_with, request, serve};
use testbed::shell;

const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [
    {"type": "go-bridge", "bridge": "cni5", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "subnet": "10.5.0.0/24", "dataDir": "/run/cni"}},
    {"type": "go-portmap", "capabilities": {"portMappings": true}},
    {"type": "go-tuning", "sysctl": {"net.core.somaxconn": "77"}}]}"#;

#[test]
fn the_reference_plugins() {
    let directory = std::env::var_os("PINION_TEST_CNI_BIN").expect("PINION_TEST_CNI_BIN is set");
    on_a_node(|| async move {
        fs::create_dir_all("/run/bin").unwrap();
        for (name, program) in
            [("go-bridge", "bridge"), ("go-portmap", "portmap"), ("go-tuning", "tuning"), ("host-local", "host-local")]
        {
            symlink(Path::new(&directory).join(program), Path::new("/run/bin").join(name)).unwrap();
        }
        let network = open(config());
        fs::create_dir_all("/run/net.d").unwrap();
        fs::write("/run/net.d/10.conflist", LIST).unwrap();
        let pod = attach(&network, 1, &[]).await;
        serve(&pod.ns, "0.0.0.0:80");
        assert!(request(&format!("{}:80", pod.ip())).is_ok());
        assert_eq!(shell("ip netns exec pod-1 cat /proc/sys/net/core/somaxconn").trim(), "77");
        network.check(&pod.id).await.unwrap();
        network.detach(&pod.id).await.unwrap();
        assert!(!shell("ip -n pod-1 -o link").contains("eth0"));
    });
}

/// A secondary network of programs: the annotation's address and hardware address, `CHECK`, `GC` and `DEL`.
#[test]
fn the_reference_plugins_for_a_further_network() {
    let directory = std::env::var_os("PINION_TEST_CNI_BIN").expect("PINION_TEST_CNI_BIN is set");
    on_a_node(|| async move {
        let with = network::Config { cni_bin_dirs: vec![directory.into()], ..config() };
        let network = open(with.clone());
        named_list(
            "aa",
            "1.1.0",
            r#"{"type": "bridge", "bridge": "br-a", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
        );
        let macvlan = r#"{"type": "macvlan", "master": "up0", "capabilities": {"ips": true}, "ipam": {"type": "static"}},
            {"type": "tuning", "capabilities": {"mac": true}}"#;
        named_list("mac", "1.1.0", macvlan);
        let local = r#"{"type": "bridge", "bridge": "br-l", "promiscMode": false,
            "ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "dataDir": "/run/cni"}}"#;
        named_list("local", "1.1.0", local);
        shell("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
        let annotation = r#"[{"name": "mac", "ips": ["10.6.0.5/24"], "mac": "02:00:00:00:00:55", "default-route": ["10.6.0.1"]},
            {"name": "local", "interface": "l0"}]"#;
        let pod = attach_pod(&network, 1, &pod_with(1, annotation), &[]).await.unwrap();
        let status = pod.attachment.network_status();
        assert_eq!(
            (&status[1]["ips"][0], &status[1]["mac"]),
            (&"10.6.0.5".into(), &"02:00:00:00:00:55".into()),
            "{status}"
        );
        let links = shell("ip -n pod-1 -d -o link show net1");
        assert!(links.contains("macvlan") && links.contains("02:00:00:00:00:55"), "{links}");
        assert_eq!(shell("ip -n pod-1 route show default").trim(), "default via 10.6.0.1 dev net1");
        drop(network);
        let network = open(with);
        network.check(&pod.id).await.unwrap();
        network.reconcile(&HashSet::from([pod.id.clone()])).await.unwrap();
        let leases = || shell("ls /run/cni/local | grep ^10 || true");
        // The reference plugins accept GC and do nothing.
        assert_eq!(leases().trim(), "10.7.0.2");
        shell("ip -n pod-1 addr del 10.7.0.2/24 dev l0");
        let error = network.check(&pod.id).await.unwrap_err().to_string();
        assert!(error.contains("CNI plugin bridge CHECK") && error.contains("10.7.0.2"), "{error}");
        network.detach(&pod.id).await.unwrap();
        network.settle().await;
        assert_eq!((leases().trim(), files("attachments").len()), ("", 0));
        let links = shell("ip -n pod-1 -br link");
        assert!(!links.contains("net1") && !links.contains("l0"), "{links}");
    });
}
