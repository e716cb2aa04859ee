//! `pinion-bench daemonsets` measures a cluster whose behaviour is known.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

/// Runs it with the program `kubectl` of this directory. Returns the summary, and what was printed.
fn run(directory: &Path, node: &str, arguments: &[&str]) -> Result<(Value, String), String> {
    let (kubectl, json) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemonsets/kubectl"), directory.join("summary.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinion-bench"));
    command.args(["daemonsets", "--kubeconfig", "none", "--image", "demo:1", "--node", node]).args(arguments);
    command.args(["--kubectl", kubectl, "--json"]).arg(&json).envs([("TMPDIR", directory), ("CLUSTER", directory)]);
    let output = command.output().expect("pinion-bench runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(text(&output.stderr));
    }
    let summary = fs::read_to_string(&json).expect("a summary");
    Ok((serde_json::from_str(&summary).expect("JSON"), text(&output.stdout)))
}

/// Returns what the first contestant has in the row of a metric.
fn cell<'a>(summary: &'a Value, metric: &str, at_once: f64) -> &'a Value {
    let rows = summary[0]["rows"].as_array().expect("rows");
    let is_same = |row: &&Value| row["metric"]["name"] == metric && row["parameter"].as_f64() == Some(at_once);
    &rows.iter().find(is_same).unwrap_or_else(|| panic!("no row {metric}, {at_once}"))["contestants"][0]
}

#[test]
fn pods_are_ready_and_removed_after_known_delays() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["-n", "3", "--at-once", "1,3", "--rounds", "2"];
    let (summary, text) = run(directory.path(), "one=worker", &arguments).expect("measured");
    for at_once in [1.0, 3.0] {
        for (metric, delay) in [("start of a pod", 200.0), ("removal of a pod", 100.0)] {
            let cell = cell(&summary, metric, at_once);
            let measured = cell["median"]["value"].as_f64().expect("a median");
            // The cluster is a shell script, whose processes need some time themselves; and the first of two events may be read late.
            assert!((delay - 30.0..delay + 100.0).contains(&measured), "{metric}, {at_once} at once: {measured} ms");
            assert_eq!((&cell["count"], &cell["failures"]), (&6.into(), &0.into()));
        }
    }
    let all = |at_once| cell(&summary, "all pods ready", at_once)["median"]["value"].as_f64().expect("a median");
    assert!(all(1.0) > 0.55 && all(3.0) > 0.17 && all(1.0) > 1.5 * all(3.0), "{} s, {} s", all(1.0), all(3.0));
    assert!(text.contains("fake://1.0, kubelet v1.2.3"), "{text}");
    let left = fs::read_dir(directory.path()).expect("a directory").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name != "summary.json").collect();
    assert!(left.is_empty(), "the namespace and the directory are removed: {left:?}");
}

#[test]
fn a_cluster_that_refuses_is_a_failure_and_an_unknown_node_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("full"), "").expect("written");
    let (summary, text) =
        run(directory.path(), "one=worker", &["-n", "1", "--at-once", "1", "--rounds", "2"]).expect("measured");
    assert_eq!(cell(&summary, "all pods ready", 1.0)["failures"], 2);
    assert!(text.contains("the cluster is full"), "{text}");
    let refused = run(directory.path(), "one=none", &["-n", "1"]).expect_err("refused");
    assert!(refused.contains("node none not found"), "{refused}");
}
