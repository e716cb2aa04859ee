use std::fs;

use super::*;
use crate::daemon::config::handlers::Handler;

/// Translates a text; returns the configuration that Pinion reads, and the keys that are not served.
fn translated(engine: Engine, text: &str, registries: &str) -> (Config, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("configuration");
    fs::write(&file, text).expect("written");
    fs::write(directory.path().join("registries.conf"), registries).expect("written");
    let mut import = config_import::import(engine, &file, directory.path()).expect("translated");
    let text = accepted(engine, &mut import).expect("accepted");
    let is_unserved = |finding: &&Finding| matches!(finding.outcome, Outcome::Unserved(_) | Outcome::Unknown);
    let unserved = import.findings.iter().filter(is_unserved).map(|finding| finding.key.clone()).collect();
    (Config::parse("", &text).expect("valid"), unserved)
}

#[test]
fn a_node_of_containerd_with_mirrors_a_private_ca_and_nvidia_is_translated() {
    let (config, unserved) = translated(
        Engine::Containerd,
        r#"version = 2
           [plugins."io.containerd.grpc.v1.cri"]
             sandbox_image = "registry.k8s.io/pause:3.9"
             max_container_log_line_size = 32768
             cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/opt/cdi"]
           [plugins."io.containerd.grpc.v1.cri".registry]
             config_path = "/srv/certs.d"
           [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
             runtime_type = "io.containerd.runc.v2"
           [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
             BinaryName = "/usr/bin/nvidia-container-runtime"
           [metrics]
             address = "127.0.0.1:1338""#,
        "",
    );
    assert_eq!(config.containers.log_line_max, 32768);
    assert_eq!(config.cdi.dirs.len(), 3);
    assert_eq!(config.registries.config_dir, Path::new("/srv/certs.d"));
    assert_eq!(config.metrics.address.map(|address| address.port()), Some(1338));
    let nvidia = &config.handlers["nvidia"];
    assert!(matches!(nvidia, Handler::Oci(oci) if oci.binary == Path::new("/usr/bin/nvidia-container-runtime")));
    assert!(!unserved.iter().any(|key| key.contains("nvidia")), "{unserved:?}");
}

#[test]
fn a_node_of_crio_with_mirrors_and_user_namespaces_is_translated() {
    let (config, unserved) = translated(
        Engine::Crio,
        r#"[crio.runtime]
           default_runtime = "crun"
           default_ulimits = ["nofile=65536:65536"]
           default_sysctls = ["net.ipv4.ping_group_range = 0 2147483647"]
           pids_limit = 4096
           log_size_max = 52428800
           [crio.runtime.runtimes.crun]
           allowed_annotations = ["io.kubernetes.cri-o.userns-mode"]
           [crio.image]
           pinned_images = ["registry.example/agent*"]
           global_auth_file = "/var/lib/kubelet/config.json"
           [crio.metrics]
           enable_metrics = true"#,
        "[[registry]]\nprefix = \"docker.io\"\nlocation = \"docker.io\"\n[[registry.mirror]]\nlocation = \"m.example\"\n",
    );
    assert_eq!(config.containers.default_ulimits, ["nofile=65536:65536"]);
    assert_eq!(config.containers.default_capabilities.len(), 9, "CRI-O's defaults");
    assert_eq!(config.containers.pids_limit, 4096);
    assert_eq!(config.containers.log_size_max, 52_428_800);
    assert_eq!(config.images.pinned, ["registry.example/agent*"]);
    assert_eq!(config.registries.mirrors["docker.io"], ["https://m.example"]);
    assert_eq!(config.metrics.address.map(|address| address.port()), Some(9090));
    assert!(unserved.iter().any(|key| key.ends_with("allowed_annotations")), "{unserved:?}");
}

#[test]
fn sizes_of_logs_that_crio_refuses_are_reported_and_unlimited_ones_need_no_key() {
    for (size, is_reported) in [(-1, false), (0, false), (8191, true)] {
        let (config, unserved) = translated(Engine::Crio, &format!("[crio.runtime]\nlog_size_max = {size}\n"), "");
        assert_eq!((config.containers.log_size_max, unserved.is_empty()), (0, !is_reported), "{size}: {unserved:?}");
    }
}

#[test]
fn a_value_that_pinion_does_not_accept_is_reported_and_left_out() {
    let text = "version = 3\n[plugins.\"io.containerd.grpc.v1.cri\"]\nstream_server_address = \"0.0.0.0\"\n";
    let (config, unserved) = translated(Engine::Containerd, text, "");
    assert_eq!(config.streaming, Config::parse("", "").expect("valid").streaming);
    assert!(unserved.iter().any(|key| key.ends_with("stream_server_address")), "{unserved:?}");
}

#[test]
fn all_keys_of_a_handler_are_checked_together_with_its_program() {
    let (config, unserved) = translated(
        Engine::Containerd,
        r#"version = 2
           [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
             runtime_type = "io.containerd.runc.v2"
             privileged_without_host_devices = true
             pod_annotations = ["a.example/*"]
             container_annotations = ["b.example/*"]
           [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
             BinaryName = "/usr/bin/crun""#,
        "",
    );
    assert!(unserved.is_empty(), "{unserved:?}");
    let Handler::Oci(crun) = &config.handlers["crun"] else { panic!("{:?}", config.handlers) };
    assert_eq!(crun.binary, Path::new("/usr/bin/crun"));
    assert!(crun.privileged_without_host_devices);
    assert_eq!(crun.allowed_annotations, ["a.example/*", "b.example/*"]);

    let (config, unserved) = translated(
        Engine::Crio,
        "[crio.runtime]\ndefault_runtime = \"runc\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\nallowed_annotations = [\"io.example\"]\n\
         monitor_env = [\"A=b\"]\n",
        "",
    );
    assert!(!unserved.iter().any(|key| key.contains("allowed_annotations")), "{unserved:?}");
    let Handler::Oci(crun) = &config.handlers["crun"] else { panic!("{:?}", config.handlers) };
    assert_eq!(crun.allowed_annotations, ["io.example*"]);
}
