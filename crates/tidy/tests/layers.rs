//! Checks the direction of dependencies between crates, and that the small programs link no async runtime.

use std::{collections::BTreeMap, process::Command};

use tidy::workspace_root;

/// Crate → the crates of this workspace that it may depend on. No other dependency between crates is allowed.
const ALLOWED: [(&str, &[&str]); 43] = [
    ("telemetry", &[]),
    ("otlp", &["telemetry"]),
    ("doctor", &["pinion-syscall"]),
    ("migrate", &["doctor"]),
    ("offload", &[]),
    ("readiness", &[]),
    ("resolver", &["offload"]),
    ("pinion-syscall", &[]),
    ("oci", &[]),
    ("seccomp", &["oci"]),
    ("cgroup", &["oci", "pinion-syscall"]),
    ("pinion-netns", &["pinion-syscall"]),
    ("container", &["oci", "cgroup", "seccomp", "pinion-syscall"]),
    ("monitor-api", &["oci", "pinion-syscall"]),
    ("agent-api", &["oci"]),
    ("agent", &["agent-api", "container", "cgroup", "seccomp", "oci", "rtnl", "pinion-syscall"]),
    ("vm", &["agent-api", "oci", "pinion-netns", "rtnl", "pinion-syscall"]),
    ("cdi", &["oci"]),
    ("ttrpc", &[]),
    ("nri", &["offload", "ttrpc"]),
    ("shim", &["ttrpc"]),
    ("config-import", &[]),
    ("pinmon", &["monitor-api", "pod-init", "container", "cgroup", "seccomp", "oci", "pinion-syscall"]),
    ("pinrun", &["container", "cgroup", "seccomp", "oci", "pinion-syscall"]),
    ("image", &["telemetry", "oci", "pinion-syscall"]),
    ("rtnl", &["pinion-syscall"]),
    ("packet-trace", &["pinion-netns", "rtnl"]),
    ("etcd", &[]),
    ("overlay", &["rtnl", "pinion-syscall"]),
    ("cni-plugins", &["pinion-netns", "overlay", "rtnl", "pinion-syscall"]),
    (
        "network",
        &[
            "telemetry",
            "offload",
            "resolver",
            "pinion-netns",
            "rtnl",
            "etcd",
            "overlay",
            "cni-plugins",
            "pinion-syscall",
        ],
    ),
    (
        "pod",
        &[
            "telemetry",
            "offload",
            "readiness",
            "oci",
            "seccomp",
            "cgroup",
            "pinion-netns",
            "network",
            "image",
            "cdi",
            "nri",
            "shim",
            "agent-api",
            "vm",
            "monitor-api",
            "pod-init",
            "pinion-syscall",
        ],
    ),
    ("cri-proto", &[]),
    ("streaming", &["oci"]),
    ("cri", &["telemetry", "offload", "readiness", "pod", "streaming", "cri-proto"]),
    (
        "pinion",
        &[
            "telemetry",
            "offload",
            "otlp",
            "doctor",
            "migrate",
            "cri",
            "pod",
            "cri-proto",
            "config-import",
            "packet-trace",
            "pinion-netns",
            "rtnl",
            "vm",
            "pinion-syscall",
        ],
    ),
    ("pinion-bench", &["cri-proto", "pinion-netns", "network", "oci", "seccomp", "vm", "pinion-syscall"]),
    ("floor", &["pinion-syscall"]),
    ("testbed", &["pinion-syscall"]),
    ("oci-tests", &[TESTBED]),
    ("system-tests", &[TESTBED, "ttrpc"]),
    ("campaign-tests", &["cri-proto", "system-tests", TESTBED]),
    ("wasm-tests", &["system-tests", TESTBED]),
];

/// What the tests share. Programs and libraries must not depend on it.
const TESTBED: &str = "testbed";

/// Crates that are linked into small, single-threaded, static programs; they must not depend on an async runtime.
const SMALL: [&str; 15] = [
    "agent-api",
    "agent",
    "telemetry",
    "pinion-syscall",
    "oci",
    "seccomp",
    "cgroup",
    "pinion-netns",
    "rtnl",
    "cni-plugins",
    "container",
    "monitor-api",
    "pod-init",
    "pinmon",
    "pinrun",
];

fn metadata() -> serde_json::Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON")
}

#[test]
fn crates_depend_downwards_only() {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let workspace_crates: Vec<&str> = packages.iter().map(|p| p["name"].as_str().expect("name")).collect();
    let mut bad = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("name");
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        for dependency in dependencies.iter().filter(|d| d["kind"].is_null()) {
            let on = dependency["name"].as_str().expect("name");
            if workspace_crates.contains(&on) && !allowed.get(name).is_some_and(|list| list.contains(&on)) {
                bad.push(format!("{name} → {on}"));
            }
        }
    }
    assert!(
        workspace_crates.len() >= ALLOWED.len(),
        "ALLOWED names crates that are not in the workspace: {workspace_crates:?}"
    );
    assert!(bad.is_empty(), "ARCHITECTURE.md does not allow these dependencies:\n{}", bad.join("\n"));
}

/// Only `[dev-dependencies]` and the packages below `tests/` may name the crate that tests share.
#[test]
fn only_tests_depend_on_the_testbed() {
    let metadata = metadata();
    let root = workspace_root();
    let (mut users, mut bad) = (0, Vec::new());
    for package in metadata["packages"].as_array().expect("packages") {
        let manifest = package["manifest_path"].as_str().expect("a path");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if dependency["name"] == TESTBED {
                users += 1;
                let is_for_tests =
                    dependency["kind"] == "dev" || manifest.starts_with(&*root.join("tests").to_string_lossy());
                bad.extend((!is_for_tests).then_some(manifest));
            }
        }
    }
    assert!(users > 5, "only {users} packages use {TESTBED}: the scan is broken");
    assert!(bad.is_empty(), "these need a [dev-dependencies] instead: {bad:?}");
}

#[test]
fn small_crates_link_no_async_runtime() {
    for name in SMALL {
        let out = Command::new(env!("CARGO"))
            .args(["tree", "--package", name, "--edges", "normal", "--prefix", "none"])
            .current_dir(workspace_root())
            .output()
            .expect("cargo tree runs");
        assert!(out.status.success(), "cargo tree -p {name}: {}", String::from_utf8_lossy(&out.stderr));
        let tree = String::from_utf8_lossy(&out.stdout);
        for heavy in ["tokio ", "hyper ", "tonic ", "prost ", "reqwest ", "clap "] {
            assert!(
                !tree.lines().any(|line| line.starts_with(heavy)),
                "{name} links {heavy}: a threaded program must not clone containers"
            );
        }
    }
}
