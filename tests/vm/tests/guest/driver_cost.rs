//! The cost of the systemd cgroup driver: the life cycle of pods with both drivers, measured by `pinion-bench` in turn.

use std::{fs, process::Command};

use serde_json::Value;

use crate::node::{Node, ok};

const REPORT: &str = "/run/driver-cost.json";
const START: [&str; 3] = ["RunPodSandbox", "CreateContainer", "StartContainer"];
/// How much longer a start may take with systemd: 1 ms of the 5.5 ms that it takes without emulation
/// (docs/benchmarks.md), which multiplies both.
const MORE: f64 = 1.0 / 5.5;

#[test]
fn a_start_costs_at_most_a_millisecond_more_than_with_cgroupfs() {
    let cgroupfs = Node::start_with("cgroupfs", 1, "[cgroup]\ndriver = \"cgroupfs\"\n");
    let systemd = Node::start_with("scopes", 2, "[cgroup]\ndriver = \"systemd\"\n");
    let engine = |name: &str, node: &Node| format!("{name}={}/socket", node.directory().display());
    let output = Command::new(testbed::program("pinion-bench"))
        .args(["pods", "--image", "demo:1", "--engine", &engine("systemd", &systemd)])
        .args(["--engine", &engine("cgroupfs", &cgroupfs), "--json", REPORT])
        .args(["--rounds", "8", "--pods", "5", "--in-flight", "1,4", "--density", "0", "--warmup", "5"])
        .output();
    println!("{}", ok(output.expect("pinion-bench runs")));
    let report: Value = serde_json::from_str(&fs::read_to_string(REPORT).expect("a report")).expect("JSON");
    let rows = report[0]["rows"].as_array().expect("rows");
    let start = |engine: usize| -> f64 {
        let one_at_a_time = rows.iter().filter(|row| row["parameter"] == 1.0);
        let steps = one_at_a_time.filter(|row| START.iter().any(|step| row["metric"]["name"] == *step));
        steps.map(|row| row["contestants"][engine]["median"]["value"].as_f64().expect("a median")).sum()
    };
    let (systemd, cgroupfs) = (start(0), start(1));
    let more = systemd / cgroupfs - 1.0;
    println!("| start, medians: systemd {systemd:.2} ms, cgroupfs {cgroupfs:.2} ms, {:+.0} % |", 100.0 * more);
    assert!(more <= MORE, "systemd {systemd:.2} ms, cgroupfs {cgroupfs:.2} ms");
}
