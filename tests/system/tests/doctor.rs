//! `pinion doctor` and `pinion migrate` on a node with a real daemon and kernel.

use std::{fs, path::Path};

use serde_json::{Value, json};
use system_tests::{Node, Options, Outcome};
use testbed::make_image;

/// Runs `pinion doctor` on the node, and checks that the exit code is that of the worst finding.
fn doctor(node: &Node, kubelet: &Path) -> Value {
    let (config, kubelet) = (node.config().display().to_string(), kubelet.display().to_string());
    let outcome = node.pinion(&["doctor", "--json", "--config", &config, "--kubelet-config", &kubelet]);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let worst = match (report["summary"]["problem"].as_u64(), report["summary"]["warning"].as_u64()) {
        (Some(0), Some(0)) => 0,
        (Some(0), _) => 1,
        _ => 2,
    };
    assert_eq!(outcome.code, Some(worst), "{report:#}");
    report
}

/// Returns severities and messages of a check.
fn findings(report: &Value, id: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = report["findings"].as_array().expect("findings").iter();
    all.filter(|finding| finding["id"] == id)
        .map(|finding| (text(&finding["severity"]), text(&finding["message"])))
        .collect()
}

#[track_caller]
fn assert_all(report: &Value, id: &str, severity: &str) {
    let found = findings(report, id);
    assert!(!found.is_empty() && found.iter().all(|(own, _)| own == severity), "{id}: {found:?}");
}

#[test]
fn the_node_is_examined_with_and_without_a_daemon() {
    let mut node = Node::new(Options::default());
    let kubelet = node.dir.path().join("kubelet.yaml");
    fs::write(&kubelet, "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n").expect("written");
    let report = doctor(&node, &kubelet);
    assert_all(&report, "pinion.daemon", "warning");
    assert_all(&report, "kubelet.endpoint", "warning");
    assert_all(&report, "kubelet.metrics", "warning");

    node.start_daemon();
    let text = "containerRuntimeEndpoint: unix:///run/pinion/pinion.sock\nfailCgroupV1: false\n\
                featureGates: {PodAndContainerStatsFromCRI: true}\n";
    fs::write(&kubelet, text).expect("written");
    let report = doctor(&node, &kubelet);
    for id in
        ["pinion.config", "pinion.daemon", "pinion.monitor", "kubelet.config", "kubelet.endpoint", "kubelet.metrics"]
    {
        assert_all(&report, id, "ok");
    }
    // The kernel that runs all other tests of the engine has everything that is tried.
    for id in ["kernel.processes", "kernel.overlay", "kernel.id-mapped-mounts", "kernel.user-namespaces"] {
        assert_all(&report, id, "ok");
    }
    for id in ["kernel.seccomp", "kernel.nftables", "kernel.bpf-devices", "cgroup.driver"] {
        assert_all(&report, id, "ok");
    }
    let left = fs::read_dir(node.dir.path().join("data")).expect("listed").flatten();
    let names: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!names.iter().any(|name| name.contains("doctor")), "left by a probe: {names:?}");

    let verbose = node.pinion(&["doctor", "--verbose"]).stdout;
    assert!(verbose.contains("kernel.overlay: ") && verbose.contains(" warning"), "{verbose}");
    assert_eq!(node.pinion(&["doctor", "--no-such-option"]).code, Some(125));

    node.stop_daemon();
    let report = doctor(&node, &kubelet);
    assert_all(&report, "pinion.daemon", "problem");
    node.end_without_daemon();
}

/// Makes a store of CRI-O with the demonstration image.
fn store(node: &Node) -> (String, String) {
    let dir = node.dir.path().join("other");
    fs::create_dir(&dir).expect("made");
    make_image(&dir, "quay.io/other/demo:1");
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).expect("read")).expect("JSON") };
    let blob = |digest: &Value| {
        dir.join("layout/blobs/sha256").join(digest.as_str().expect("a digest").trim_start_matches("sha256:"))
    };
    let manifest = read(&blob(&read(&dir.join("layout/index.json"))["manifests"][0]["digest"]));
    let image = manifest["config"]["digest"].as_str().expect("a digest").trim_start_matches("sha256:").to_owned();
    let layer = "a".repeat(64);
    for name in ["overlay-images", "overlay-layers"] {
        fs::create_dir_all(dir.join("store").join(name)).expect("made");
    }
    fs::create_dir_all(dir.join(format!("store/overlay/{layer}/diff"))).expect("made");
    let write = |name: &str, value: Value| fs::write(dir.join("store").join(name), value.to_string()).expect("written");
    let images = json!([
        {"id": image, "names": ["quay.io/other/demo:1"], "layer": layer},
        {"id": "b".repeat(64), "names": ["quay.io/other/lost:1"], "layer": "c".repeat(64)},
    ]);
    write("overlay-images/images.json", images);
    write("overlay-layers/layers.json", json!([{"id": layer}]));
    // The whole archive is one segment.
    let script = format!(
        "cd {} && {{ printf '{{\"type\":2,\"payload\":\"'; zcat {} | base64 -w0; printf '\"}}\\n'; }} | gzip -1 > overlay-layers/{layer}.tar-split.gz \
         && mkdir overlay-images/{image} && cp {} \"overlay-images/{image}/=$(printf sha256:{image} | base64 -w0)\"",
        dir.join("store").display(),
        blob(&manifest["layers"][0]["digest"]).display(),
        blob(&manifest["config"]["digest"]).display(),
    );
    node.run("sh", &["-c", &script]).ok();
    (dir.join("store").display().to_string(), format!("sha256:{image}"))
}

#[test]
fn images_of_another_engine_are_imported() {
    let node = Node::start();
    let (root, id) = store(&node);
    let migrate =
        |more: &[&str]| -> Outcome { node.pinion(&[&["migrate", "crio", "--root", &root, "--json"], more].concat()) };
    let actions = |report: &Value| -> Vec<String> {
        let images = report["images"].as_array().expect("images").iter();
        images.map(|image| image["action"].as_str().expect("text").to_owned()).collect()
    };
    for options in [&[][..], &["--images", "--dry-run"]] {
        let report = migrate(options).json();
        assert_eq!(actions(&report), ["import", "pull"]);
        let steps = report["plan"]["steps"].as_array().expect("steps");
        assert!(steps.iter().any(|step| step["command"] == "systemctl disable --now crio"), "{report:#}");
    }
    assert_eq!(node.pinion(&["images", "-q"]).ok(), "", "nothing was changed");
    let report = migrate(&["--images"]).json();
    assert_eq!(actions(&report), ["imported", "pull"]);
    assert!(report["images"][1]["reason"].as_str().is_some_and(|reason| reason.contains("is not in the store")));
    let image = node.pinion(&["inspect", "quay.io/other/demo:1"]).json();
    assert!(image.to_string().contains(&id), "{image}");
    assert_eq!(actions(&migrate(&["--images"]).json()), ["present", "pull"]);
    let output = node.pinion(&["run", "--rm", "--network", "host", "quay.io/other/demo:1", "cat", "/www/index.html"]);
    assert!(output.ok().contains("hello"), "{output:?}");
    let text = node.pinion(&["migrate", "crio", "--root", &root]).ok();
    assert!(text.contains("To go back:") && text.contains("1 to import"), "{text}");
    assert_ne!(node.pinion(&["migrate", "containerd", "--root", "/nonexistent"]).code, Some(0));
    node.end();
}
