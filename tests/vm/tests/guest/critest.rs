//! critest, the conformance suite of the CRI, with the systemd cgroup driver.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use testbed::wait_until;

use crate::node::{Node, ok};

const FILES: &str = "/suite/critest";
const REPORT: &str = "/run/critest.json";
const MIRRORS: &str = "[registries.mirrors]\n\"registry.k8s.io\" = [\"http://127.0.0.1:5000\"]\n\
    \"k8s.gcr.io\" = [\"http://127.0.0.1:5000\"]\n\"gcr.io\" = [\"http://127.0.0.1:5000\"]\n";

/// A registry with the images of the suite, which is stopped when this is dropped.
struct Registry(Child);

impl Registry {
    fn start() -> Self {
        let log = fs::File::create("/run/registry.log").expect("a log");
        let program = Path::new(FILES).join("docker-registry");
        let mut command = Command::new(program);
        command.arg("serve").arg(format!("{FILES}/registry.yaml")).stdout(Stdio::null()).stderr(log);
        let registry = Self(command.spawn().expect("start the registry"));
        wait_until("the registry accepts connections", Duration::from_secs(60), || {
            std::net::TcpStream::connect("127.0.0.1:5000").is_ok()
        });
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a directory with a program `sudo`, by which critest loads AppArmor profiles. The tests run as root, and the guest
/// does not have one.
fn sudo() -> PathBuf {
    let program = Path::new("/run/critest-programs/sudo");
    let directory = program.parent().expect("a directory");
    fs::create_dir_all(directory).expect("a directory");
    fs::write(program, "#!/bin/sh\nexec \"$@\"\n").expect("written");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("executable");
    directory.to_owned()
}

fn read(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))).expect("JSON")
}

fn name_of(spec: &Value) -> String {
    let hierarchy = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let texts = hierarchy.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join(" ")
}

/// Returns the specs of the report that are in one of the states, with the messages of failures.
fn in_state(report: &Value, states: &[&str]) -> Vec<String> {
    let suites = report.as_array().into_iter().flatten();
    let specs = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    let selected = specs.filter(|spec| spec["State"].as_str().is_some_and(|state| states.contains(&state)));
    let with_message = |spec| format!("{}: {}", name_of(spec), spec["Failure"]["Message"].as_str().unwrap_or_default());
    selected.filter(|spec| spec["LeafNodeType"] == "It" || spec["State"] != "passed").map(with_message).collect()
}

#[test]
fn every_spec_passes_with_the_systemd_driver() {
    let registry = Registry::start();
    let node = Node::start_with("critest", 7, &format!("[cgroup]\ndriver = \"systemd\"\n{MIRRORS}"));
    let address = format!("unix://{}/socket", node.directory().display());
    let path = format!("{}:{}", sudo().display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new(format!("{FILES}/critest"))
        .env("PATH", path)
        .args(["--runtime-endpoint", &address, "--ginkgo.no-color", "--ginkgo.timeout=45m"])
        .arg(format!("--ginkgo.json-report={REPORT}"))
        .current_dir("/run")
        .output()
        .expect("critest runs");
    let report = read(REPORT);
    let failed = in_state(&report, &["failed", "panicked", "timedout", "interrupted", "aborted"]);
    let (passed, skipped) = (in_state(&report, &["passed"]), in_state(&report, &["skipped", "pending"]));
    println!("\n| critest | {} passed, {} failed, {} skipped |", passed.len(), failed.len(), skipped.len());
    assert!(failed.is_empty() && output.status.success(), "failed:\n{}", failed.join("\n"));
    // This kernel has AppArmor: nothing but the benchmarks is skipped.
    assert!(skipped.iter().all(|spec| spec.contains(" benchmark about ")), "skipped:\n{}", skipped.join("\n"));
    let expected = read(&format!("{FILES}/expected.json"));
    let rows = expected["skipped"].as_array().into_iter().flatten();
    let total =
        expected["passed"].as_u64().expect("a number") + rows.filter_map(|row| row["count"].as_u64()).sum::<u64>();
    assert_eq!((passed.len() + skipped.len()) as u64, total);
    assert_eq!(ok(node.crictl(&["pods", "-q"])), "");
    // Those of this engine: an earlier step that timed out may have left others.
    let description = format!("Pinion in {}", node.state());
    let units = || {
        let list = ["list-units", "--all", "--no-legend", "pinion-*.scope"];
        let text = ok(Command::new("systemctl").args(list).output().expect("systemctl"));
        text.lines().filter(|line| line.ends_with(&description)).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut left = Vec::new();
    for _ in 0..60 {
        left = units();
        if left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(left.is_empty(), "systemd has scopes:\n{}", left.join("\n"));
    drop(registry);
}
