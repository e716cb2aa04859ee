//! Runs the CNI reference plugins as programs, by names that are not built in:
//! `PINION_TEST_CNI_BIN=<directory> cargo test -p network --features reference-plugins`

mod node;

use std::{fs, os::unix::fs::symlink, path::Path};

use node::{attach, config, on_a_node, open, request, serve};
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
