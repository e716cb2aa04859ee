//! `pinion-bench density` fills engines whose behaviour is known. It reads all processes. Delays cannot be measured at the same time.

#[path = "../pods/engine.rs"]
mod engine;

use std::{fs, process::Command};

use engine::{Behaviour, Engine};
use serde_json::Value;

#[test]
fn pods_are_started_until_there_are_most_of_them_or_one_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    for (fail_every, expected, failures) in [(0, 12.0, 0), (8, 7.0, 3)] {
        let place = directory.path().join(expected.to_string());
        fs::create_dir(&place).expect("made");
        let engine = Engine::start(&place, Behaviour { run_ms: 20, stop_ms: 0, fail_every });
        let json = place.join("summary.json");
        let arguments = ["--most", "12", "--at-once", "1", "--rounds", "3", "--json", json.to_str().expect("UTF-8")];
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinion-bench"));
        command.args(["density", "--image", "demo:1", "--engine", &engine.named("fake")]).args(arguments);
        let output = command.output().expect("pinion-bench runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_str(&fs::read_to_string(&json).expect("a summary")).expect("JSON");
        let rows = summary[0]["rows"].as_array().expect("rows");
        let row = |name: &str| rows.iter().find(|row| row["metric"]["name"] == name).expect("a row");
        let pods = &row("pods")["contestants"][0];
        assert!((pods["median"]["value"].as_f64().expect("a median") - expected).abs() < 0.6, "{pods}");
        assert_eq!(row("start of a pod")["contestants"][0]["failures"], failures);
        assert_eq!(engine.pods(), 0, "all pods are removed");
    }
}
